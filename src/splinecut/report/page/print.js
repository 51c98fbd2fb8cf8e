// @ts-check
// On paper: light colours, and pictures that are painted before the page is laid out for it. While a browser prints it runs
// no animation frame and lays the page out in another width, so that a canvas would be cleared and not painted again.

import { themeChanged } from "./theme.js";

/** @import { Pane } from "./pane.js" */

/** @param {Pane[]} panes */
export function startPrint(panes) {
  const root = document.documentElement;
  let kept = /** @type {{ theme: string | undefined } | null} */ (null); // what to go back to; null while nothing is printed
  const begin = () => {
    if (kept) return; // told twice, by the event and by the media query
    kept = { theme: root.dataset.theme };
    root.dataset.theme = "light";
    panes.forEach((pane) => pane.print()); // first: it shows what is in sight at the size of the screen
    root.classList.add("printing");
    themeChanged();
  };
  const end = () => {
    if (!kept) return;
    if (kept.theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = kept.theme;
    kept = null;
    root.classList.remove("printing");
    panes.forEach((pane) => pane.endPrint());
    themeChanged();
  };
  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? begin() : end()));
}
