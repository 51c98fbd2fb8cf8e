// @ts-check
// A slider over some frames of a film, with a button that plays them.

import { el, painted } from "./elements.js";

const PLAY = 90; // milliseconds a stored frame stays when playing

/** @typedef {{ show: (frame: number) => Promise<void>, shown: () => number, stopAll: () => void }} Player the view it drives */

export class FrameSlider {
  /**
   * @param {string} label
   * @param {number[]} frames numbers of frames, in the order of the slider
   * @param {(frame: number) => string} text what is said of a frame
   * @param {Player} player
   * @param {"first" | "last"} otherwise where it stands while some other frame is shown
   */
  constructor(label, frames, text, player, otherwise) {
    this.frames = frames;
    this.text = text;
    this.player = player;
    this.otherwise = otherwise === "first" ? 0 : frames.length - 1;
    this.isPlaying = false;
    this.input = el("input", { type: "range", min: 0, max: Math.max(0, frames.length - 1), step: 1, value: 0, oninput: () => {
      const frame = frames[Number(this.input.value)]; // before `stopAll` puts the slider back to what is shown
      player.stopAll();
      player.show(frame);
    } });
    this.output = el("output");
    this.button = el("button", { type: "button", "aria-label": `Play ${label.toLowerCase()}`, onclick: () => this.press() }, "▶");
    this.element = el("div", { class: "player" }, this.button, el("label", { class: "slider" }, label, this.input, this.output));
    this.element.hidden = frames.length < 2;
  }

  press() {
    const wasPlaying = this.isPlaying;
    this.player.stopAll();
    if (!wasPlaying) this.play();
  }

  /** Plays from the frame shown, or from the first when at the end. */
  async play() {
    this.isPlaying = true;
    const { frames, player } = this, from = frames.indexOf(player.shown());
    for (let at = from < 0 || from === frames.length - 1 ? 0 : from; this.isPlaying && at < frames.length; at++) {
      const begun = performance.now();
      await player.show(frames[at]);
      await painted();
      await new Promise((done) => setTimeout(done, Math.max(0, PLAY - (performance.now() - begun))));
    }
    if (this.isPlaying) player.stopAll();
  }

  /** Stands where `frame` is. @param {number} frame */
  sync(frame) {
    const at = this.frames.indexOf(frame);
    this.input.value = String(at >= 0 ? at : this.otherwise);
    this.output.textContent = this.frames.length ? this.text(this.frames[Number(this.input.value)]) : "";
    this.input.setAttribute("aria-valuetext", this.output.textContent);
    this.button.textContent = this.isPlaying ? "❚❚" : "▶";
  }
}
