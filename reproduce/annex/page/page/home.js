// The first view, which the HTML has complete: claims that can be walked through and filtered, and Figure 12 live.
import { draw } from "./chart.js";
import { byId, element } from "./elements.js";
import { chartOf, near } from "./figure.js";
import { cluster, current, follow, update } from "./page.js";

const cells = /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll("#view-home .waffle a")]);
const kindOf = (/** @type {Element} */ cell) => cell.className.match(/v-\w+/)?.[0] ?? "";
const published = /** @type {SVGElement[]} */ ([...document.querySelectorAll("#home-chart svg")]);

export function make() {
  cells.forEach((cell, i) => {
    cell.tabIndex = -1;
    cell.addEventListener("focus", () => choose(i));
    cell.addEventListener("pointerenter", () => choose(i));
    cell.addEventListener("keydown", (event) => walk(event, i));
  });
  const first = byId("said").querySelector("a")?.getAttribute("href");
  choose(
    Math.max(
      0,
      cells.findIndex((cell) => cell.getAttribute("href") === first),
    ),
  );
  for (const row of document.querySelectorAll(".tally button")) row.addEventListener("click", () => filter(row));
  fit();
  addEventListener("resize", fit);
}

/** Of the two pictures of the published points, the one for this width. */
function fit() {
  const narrow = byId("home-chart").clientWidth < 560;
  published.forEach((picture, i) => picture.toggleAttribute("hidden", narrow !== Boolean(i)));
}

/** Show the claim of a cell in the card below; the cell is where Tab enters. @param {number} at */
function choose(at) {
  cells.forEach((cell, i) => {
    cell.tabIndex = i === at ? 0 : -1;
    if (i === at) cell.setAttribute("aria-current", "true");
    else cell.removeAttribute("aria-current");
  });
  const cell = cells[at];
  const said = byId("said");
  said.className = `said ${kindOf(cell)}`;
  const [head, sentence, why] = said.children;
  head.children[0].textContent = cell.title.replace(": ", " · ");
  head.children[1].setAttribute("href", cell.getAttribute("href") ?? "");
  sentence.textContent = cell.dataset.said ?? "";
  why.textContent = cell.dataset.why ?? "";
}

/** @param {KeyboardEvent} event @param {number} at */
function walk(event, at) {
  const columns = getComputedStyle(cells[0].closest(".waffle") ?? cells[0]).gridTemplateColumns.split(" ").length;
  const step = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
    Home: -at,
    End: cells.length - 1 - at,
  }[event.key];
  if (event.key === "Enter") {
    event.preventDefault();
    return follow(cells[at].getAttribute("href") ?? "");
  }
  if (step === undefined) return;
  event.preventDefault();
  cells[Math.min(Math.max(at + step, 0), cells.length - 1)].focus();
}

/** Claims of one verdict only, or again all. @param {Element} row */
function filter(row) {
  const on = row.getAttribute("aria-pressed") !== "true";
  for (const each of document.querySelectorAll(".tally button"))
    each.setAttribute("aria-pressed", String(on && each === row));
  const kind = `v-${row.getAttribute("data-kind")}`;
  for (const cell of cells) cell.classList.toggle("faint", on && kindOf(cell) !== kind);
  const found = cells.findIndex((cell) => kindOf(cell) === kind);
  if (on && found >= 0) choose(found);
}

export function refresh() {
  if (current().view !== "home") return;
  return update("home", "artifact", { id: "fig_interleaved", ...cluster() }, (/** @type {ArtifactAnswer} */ answer) => {
    byId("first-over").textContent = `${answer.label}, computed just now`;
    byId("first").textContent = answer.finding || answer.title;
    byId("home-note").textContent = near(answer);
    byId("home-chart").replaceChildren(element("div"));
    draw(byId("home-chart"), { ...chartOf(answer), note: byId("home-note") });
  });
}

export const fill = () => {};
