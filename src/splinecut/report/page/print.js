"use strict";
// On paper: light colours, and pictures that are painted before the page is laid out for it. While a browser prints it runs
// no animation frame and lays the page out in another width, so that a canvas would be cleared and not painted again.

function startPrint() {
  const root = document.documentElement;
  let kept = null; // what to go back to; null while nothing is printed
  const begin = () => {
    if (kept) return; // told twice, by the event and by the media query
    kept = { theme: root.dataset.theme };
    root.dataset.theme = "light";
    viewer?.panes.forEach((pane) => pane.print()); // first: it shows what is in sight at the size of the screen
    root.classList.add("printing");
    themed.forEach((redraw) => redraw());
  };
  const end = () => {
    if (!kept) return;
    if (kept.theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = kept.theme;
    kept = null;
    root.classList.remove("printing");
    viewer?.panes.forEach((pane) => pane.endPrint());
    themed.forEach((redraw) => redraw());
  };
  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? begin() : end()));
}
