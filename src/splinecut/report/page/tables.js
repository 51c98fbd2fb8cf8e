// @ts-check
// Views (e) and (f): the tables and runs that stand in the page from the start, made sortable, copyable and searchable.

import { byId, el, part } from "./elements.js";

/** View (e): the tables. */
export function startTables() {
  const tables = /** @type {NodeListOf<HTMLTableElement>} */ (document.querySelectorAll("table.data"));
  byId("tables").hidden = !tables.length;
  for (const table of tables) {
    /** @type {NodeListOf<HTMLTableCellElement>} */ (table.querySelectorAll("thead th")).forEach((head, column) => {
      const text = head.textContent;
      head.replaceChildren(el("button", { type: "button", onclick: () => sortBy(table, head, column) }, text));
      head.setAttribute("aria-sort", "none");
    });
    const said = el("span", { role: "status" });
    const copy = (/** @type {(table: HTMLTableElement) => string} */ text) => async () => {
      said.textContent = (await copied(text(table))) ? "copied" : "the browser does not allow copying here; select the table instead";
    };
    table.closest(".scroll")?.before(el("div", { class: "copy" },
      el("button", { type: "button", onclick: copy(asTabs) }, "Copy for a spreadsheet"),
      el("button", { type: "button", onclick: copy(asMarkdown) }, "Copy as Markdown"), said));
  }
}

/** Sorts by a column, ascending first. @param {HTMLTableElement} table @param {HTMLTableCellElement} head @param {number} column */
function sortBy(table, head, column) {
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const key = (/** @type {HTMLTableRowElement} */ row) => {
    const { dataset, textContent } = row.cells[column];
    return dataset.value === undefined ? textContent ?? "" : Number(dataset.value); // text is rounded, `data-value` is not
  };
  const compare = (/** @type {string | number} */ a, /** @type {string | number} */ b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, key: key(row) })).sort((a, b) => sign * compare(a.key, b.key));
  body.append(...rows.map(({ row }) => row));
  for (const other of head.parentElement?.children ?? []) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

/** @param {HTMLTableElement} table */
const cells = (table) => Array.from(table.rows, (row) => Array.from(row.cells, (cell) => (cell.textContent ?? "").trim()));

/** @param {HTMLTableElement} table */
const asTabs = (table) => cells(table).map((row) => row.map((text) => text.replace(/\s+/g, " ")).join("\t")).join("\n");

/** @param {HTMLTableElement} table */
function asMarkdown(table) {
  const rows = cells(table).map((row) => `| ${row.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`);
  const rule = `|${" --- |".repeat(table.rows[0].cells.length)}`;
  return [rows[0], rule, ...rows.slice(1)].join("\n");
}

/** Whether `text` is now on the clipboard; pages opened from a disk may have to use the old way. @param {string} text */
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
export function startRuns() {
  const runs = /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll("details.run")]);
  byId("runs").hidden = !runs.length;
  if (!runs.length) return;
  const search = el("input", { type: "search", oninput: () => {
    const wanted = search.value.toLowerCase();
    runs.forEach((run) => (run.hidden = !run.querySelector("summary")?.textContent?.toLowerCase().includes(wanted)));
  } });
  const open = (/** @type {boolean} */ isOpen) => () => runs.forEach((run) => (run.open = isOpen));
  part("runs", "controls").append(
    el("label", {}, "Find", search),
    el("button", { type: "button", onclick: open(true) }, "Open all"),
    el("button", { type: "button", onclick: open(false) }, "Close all"),
  );
}
