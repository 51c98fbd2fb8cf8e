"use strict";
// View (e): the tables that stand in the page from the start, made sortable and copyable.

function startTables() {
  for (const table of document.querySelectorAll("table.data")) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const text = head.textContent;
      head.replaceChildren(el("button", { type: "button", onclick: () => sortBy(table, head, column) }, text));
      head.setAttribute("aria-sort", "none");
    });
    const said = el("span", { role: "status" });
    const copy = (text) => async () => {
      said.textContent = (await copied(text(table))) ? "copied" : "the browser does not allow copying here; select the table instead";
    };
    table.closest(".scroll").before(el("div", { class: "copy" },
      el("button", { type: "button", onclick: copy(asTabs) }, "Copy for a spreadsheet"),
      el("button", { type: "button", onclick: copy(asMarkdown) }, "Copy as Markdown"), said));
  }
}

function sortBy(table, head, column) {
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row), row]).sort((a, b) => sign * compare(a[0], b[0]));
  body.append(...rows.map(([, row]) => row));
  for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

const cells = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
const asTabs = (table) => cells(table).map((row) => row.map((text) => text.replace(/\s+/g, " ")).join("\t")).join("\n");

function asMarkdown(table) {
  const rows = cells(table).map((row) => `| ${row.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`);
  const rule = `|${" --- |".repeat(table.rows[0].cells.length)}`;
  return [rows[0], rule, ...rows.slice(1)].join("\n");
}

/** Whether `text` is now on the clipboard; pages opened from a disk may have to use the old way. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** View (f): all details open or closed, and a filter by name. */
function startRuns() {
  const runs = [...document.querySelectorAll("details.run")];
  document.getElementById("runs").hidden = !runs.length;
  if (!runs.length) return;
  const search = el("input", { type: "search", oninput: () => {
    const wanted = search.value.toLowerCase();
    runs.forEach((run) => (run.hidden = !run.firstElementChild.textContent.toLowerCase().includes(wanted)));
  } });
  const open = (is) => () => runs.forEach((run) => (run.open = is));
  part("runs", "controls").append(el("label", {}, "Find", search),
    el("button", { type: "button", onclick: open(true) }, "Open all"), el("button", { type: "button", onclick: open(false) }, "Close all"));
}
