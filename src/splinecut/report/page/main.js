"use strict";
// Starts every view that has data, and leaves a handle for scripts and tests.

document.documentElement.classList.add("scripted");
startTheme();
startCost();
startBird();
const viewer = startPartition();
startRedundancy();
startTables();
startRuns();
startPrint();
if (!document.querySelector("table.data")) document.getElementById("tables").hidden = true;
for (const view of document.querySelectorAll(".view:not([hidden])")) {
  document.getElementById("contents").append(el("a", { href: `#${view.id}` }, view.dataset.title));
}

/** What the page shows, for scripts: `splinecut.mesh()` answers n, locate(u, v), maps(region), owner(edge). */
const splinecut = {
  facts: FACTS,
  viewer,
  mesh: () => viewer.panes[1].mesh,
  unit: chosenUnit,
  painted,
};
painted().then(() => document.documentElement.classList.add("ready"));
