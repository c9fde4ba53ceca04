// The first view, which the HTML has complete: claims that can be walked through and filtered, and Figure 12 live.
import { draw } from "./chart.js";
import { byId, mark } from "./elements.js";
import { chartOf } from "./figure.js";
import { cluster, follow, update } from "./page.js";

const cells = /** @type {any[]} */ ([...document.querySelectorAll("#view-home .waffle a")]);
const tally = /** @type {any[]} */ ([...document.querySelectorAll(".tally button")]);
const kindOf = (/** @type {any} */ cell) => cell.className.match(/v-\w+/)[0];

export function make() {
  cells.forEach((cell, i) => {
    cell.addEventListener("focus", () => choose(i));
    cell.addEventListener("pointerenter", () => choose(i));
    cell.addEventListener("keydown", (/** @type {any} */ event) => walk(event, i));
  });
  const first = byId("said").querySelector("a").getAttribute("href");
  choose(cells.findIndex((cell) => cell.getAttribute("href") === first));
  for (const row of tally) row.addEventListener("click", () => filter(row));
}

/** Show the claim of a cell in the card below; the cell is where Tab enters. @param {number} at */
function choose(at) {
  cells.forEach((cell, i) => {
    cell.tabIndex = i === at ? 0 : -1;
    mark(cell, i === at);
  });
  const cell = cells[at];
  const said = byId("said");
  said.className = `said ${kindOf(cell)}`;
  const [head, sentence, why] = said.children;
  head.children[0].textContent = cell.title.replace(": ", " · ");
  head.children[1].setAttribute("href", cell.getAttribute("href"));
  sentence.textContent = cell.dataset.said;
  why.textContent = cell.dataset.why;
}

/** @param {KeyboardEvent} event @param {number} at */
function walk(event, at) {
  const columns = getComputedStyle(cells[0].closest(".waffle")).gridTemplateColumns.split(" ").length;
  const ends = { Home: -at, End: cells.length - 1 - at };
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, ...ends }[event.key];
  if (event.key !== "Enter" && step === undefined) return;
  event.preventDefault();
  if (step === undefined) return follow(cells[at].getAttribute("href"));
  cells[Math.min(Math.max(at + step, 0), cells.length - 1)].focus();
}

/** Claims of one verdict only, or again all. @param {any} row */
function filter(row) {
  const on = row.getAttribute("aria-pressed") !== "true";
  for (const each of tally) each.setAttribute("aria-pressed", on && each === row);
  const of = (/** @type {HTMLElement} */ cell) => kindOf(cell) === `v-${row.dataset.kind}`;
  for (const cell of cells) cell.classList.toggle("faint", on && !of(cell));
  if (on && cells.some(of)) choose(cells.findIndex(of));
}

export function refresh() {
  return update("home", "artifact", { id: "fig_interleaved", ...cluster() }, (/** @type {ArtifactAnswer} */ answer) => {
    byId("first-over").textContent = `${answer.label}, computed just now`;
    byId("first").textContent = answer.finding || answer.title;
    byId("home-note").textContent = answer.near;
    const height = byId("home-chart").clientWidth < 560 ? 330 : 530; // as the published pictures
    draw(byId("home-chart"), { ...chartOf(answer), height, note: byId("home-note") });
  });
}
