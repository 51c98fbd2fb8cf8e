// @ts-check
// Starts every view that has data. report/script_bundle.py joins this file and all that it imports into the page's one script.

import { startCost } from "./cost.js";
import { pageData } from "./data.js";
import { startDetector } from "./detector.js";
import { byId, el, painted } from "./elements.js";
import { startPartition } from "./partition.js";
import { startPrint } from "./print.js";
import { Raster } from "./raster.js";
import { startRedundancy } from "./redundancy.js";
import { chosenFilm, chosenUnit } from "./selection.js";
import { startRuns, startTables } from "./tables.js";
import { isDark, pastel, rgb, startTheme, variable } from "./theme.js";

document.documentElement.classList.add("scripted");
startTheme();
startCost();
startDetector();
const viewer = startPartition();
startRedundancy();
startTables();
startRuns();
startPrint(viewer?.panes ?? []);
for (const view of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".view:not([hidden])"))) {
  byId("contents").append(el("a", { href: `#${view.id}` }, view.dataset.title ?? view.id));
}

/**
 * The only name that the page leaves in its window, for the console and for tests: `splinecut.mesh()` is the partition shown
 * and answers `n`, `locate(u, v)`, `maps(region)`, `owner(edge)`; `splinecut.unit.set({ layer: 0, unit: 3 })` chooses a unit.
 */
const handle = {
  facts: pageData,
  viewer,
  mesh: () => viewer?.panes[1].mesh ?? null,
  film: chosenFilm,
  unit: chosenUnit,
  painted,
  internals: { Raster, isDark, pastel, rgb, variable }, // what tests compare pixels with
};
Object.assign(window, { splinecut: handle });
painted().then(() => document.documentElement.classList.add("ready"));
