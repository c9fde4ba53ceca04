// The view of figures and tables: what was found, ours over the paper's, the claims, and the points.
import { draw } from "./chart.js";
import { card } from "./claims.js";
import { button, byId, choices, copy, download, el, fill as put, link, more, svg, table, tell } from "./elements.js";
import { picker } from "./machine.js";
import { change, cluster, current, update } from "./page.js";
import { ask } from "./python.js";
import { capital, circle, exports, fitted, path, rect } from "./svg.js";

/** @type {any} */
let shown; // an answer
/** @type {ArtifactAnswer[]} */
let list = [];
/** @type {string[]} */
let names = []; // of those in the list

/** What marks look like in the list that says what they mean. */
const MARKS = {
  dot: () => [path("M0 12H40", "line s2"), circle(20, 12, 3.5, "f2")],
  ring: () => circle(20, 12, 7, "pub s2"),
  band: () => rect(0, 0, 40, 24, "ar f2"),
};

export function make() {
  const name = () => shown?.id.replaceAll("/", "_") ?? "figure";
  const saved = [
    exports("chart", name),
    button("CSV", () => save(name()), ".quiet#export-csv"),
    button("Copy command", ({ target }) => shown && copy(target, shown.command), ".quiet#command"),
  ];
  const picked = el("select#artifact", { change: () => change({ artifact: byId("artifact").value, claim: "" }) });
  const way = (/** @type {string} */ to) => link("#view=figure", "", `.quiet.${to}`);
  const walked = (/** @type {any} */ { key, target }) => {
    const to = /** @type {Record<string, string>} */ ({ ArrowLeft: "before", ArrowRight: "after" })[key];
    if (to && target !== picked) byId("figure-nav").querySelector(`.${to}`).click();
  };
  byId("view-figure").append(
    el(
      "div.head",
      el(
        "nav.pick#figure-nav",
        { "aria-label": "Figures", keydown: walked },
        way("before"),
        el("label.field", el("span.off", "Figure or table"), picked),
        way("after"),
      ),
      el("h1#artifact-title", "Figures and tables"),
      el("p.lede#artifact-description"),
    ),
    el(
      "div.cols.chart",
      el(
        "figure.titled",
        el("div.plot#chart"),
        el("figcaption.row.ends", el("span.note#chart-note", { role: "status" }), el("span.row.tight", saved)),
      ),
      el(
        "section",
        { "aria-labelledby": "read" },
        el("h2#read", "How to read it"),
        el("ul.read#reading"),
        picker("figure"),
        el("p.note", "On another machine the rings stay, the lines move."),
      ),
    ),
    el(
      "section",
      { "aria-labelledby": "claims-title" },
      el("div.row.ends", el("h2#claims-title"), el("span.note#claims-how")),
      el("div.claims#claims"),
    ),
    el("div#figure-details", more("The points as a table", "points")),
    el("ul.note.titled#notes"),
    el("nav.row.ends", { "aria-label": "Neighbours" }, way("before"), way("after")),
  );
}

export function refresh() {
  if (shown && shown.id !== current().artifact)
    for (const part of ["chart", "claims"]) byId(part).classList.add("stale");
  const about = { id: current().artifact, ...cluster() };
  const drawn = update("figure", "artifact", about, show);
  void update("claims", "claims", about, showClaims); // judging them takes as long again, and the chart can be seen
  return drawn;
}

/** @param {ArtifactAnswer} answer */
function show(answer) {
  shown = answer;
  const { label, title, finding } = answer;
  walk();
  byId("artifact-title").textContent = finding || title;
  byId("artifact-description").textContent = `${label}: ${finding ? `${title}. ` : ""}${answer.description}`;
  byId("points").querySelector("div").replaceChildren(table("Points", answer.table));
  tell("points", `${answer.points.length} points`);
  const notes = answer.notes.map((note) => el("li", capital(note)));
  put("notes", notes);
  byId("chart-note").textContent = answer.near;
  put("reading", marks(answer));
  byId("chart").classList.remove("stale");
  const chart = chartOf(answer);
  if (chart.series.length) draw(byId("chart"), { ...chart, note: byId("chart-note") });
  else fitted(byId("chart"), () => table(label, answer.table));
}

/** @param {{ claims: Claim[] }} answer */
function showClaims({ claims }) {
  const held = claims.filter(({ verdict }) => verdict === "holds").length;
  byId("claims-title").textContent = claims.length
    ? `What is said about it: ${held} of ${claims.length} claims hold`
    : "Nothing is claimed about it";
  const barred = claims.some(({ bar }) => bar);
  byId("claims-how").textContent = barred ? "The bar shows what a claim needs (green), and what came out (dot)." : "";
  byId("claims").classList.remove("stale");
  const sentences = [...new Set(claims.map(({ sentence }) => sentence))];
  const said = (/** @type {string} */ sentence) => claims.filter((claim) => claim.sentence === sentence);
  const cards = sentences.map((sentence) => card(said(sentence), current().claim));
  put("claims", cards);
  document.querySelector("[data-chosen]")?.scrollIntoView({ block: "center" });
}

/** What marks mean, of those that are there. @param {ArtifactAnswer} answer */
function marks({ x, reading }) {
  if (!x) return el("li", el("span.full", "A table: it has no axis to draw along."));
  return reading.map(([mark, what, words]) => {
    const drawn = svg("svg", { width: 40, height: 24, "aria-hidden": "true" }, MARKS[mark]());
    return el("li", drawn, el("span", el("b", what), ` ${words}`));
  });
}

/** @param {ArtifactAnswer} answer @returns {import("./chart.js").Chart} */
export function chartOf({ label, x, points, fidelity, dotted, elsewhere, gap, quantities: [quantity] }) {
  const { name, factor } = quantity;
  const value = (/** @type {unknown} */ given) => (typeof given === "number" ? given / factor : null);
  const names = x ? [...new Set(points.map((point) => point.series))] : [];
  const mark = (/** @type {PointAnswer} */ { label: words, parameters, status, metrics, paper, intervals }) => ({
    x: x?.scale === "category" ? words : parameters[x?.parameter ?? ""],
    y: status === "ok" ? value(metrics[name]) : null,
    paper: value(paper[name]),
    status,
    ...(intervals[name] && { low: intervals[name][0] / factor, high: intervals[name][1] / factor }),
  });
  const series = names.map((each) => ({
    name: each || fidelity,
    dashed: dotted.includes(each),
    marks: points.filter((point) => point.series === each).map(mark),
  }));
  const axis = quantity.axis || quantity.heading;
  return {
    label: `${label}: ${axis} over ${x?.label}`,
    quantity: axis,
    unit: quantity.shown,
    x: x?.label ?? "",
    scale: x?.scale ?? "linear",
    series: series.filter((one) => one.marks.some((each) => each.y !== null || each.paper !== null)),
    faded: elsewhere,
    gap,
  };
}

/** @param {string} name */
function save(name) {
  const quoted = (/** @type {any} */ cell) =>
    /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell ?? "");
  const lines = shown.table.map((/** @type {Scalar[]} */ row) => row.map(quoted).join(","));
  download(`${name}.csv`, `${lines.join("\n")}\n`, "text/csv");
}

/** Previous and next, and the name of the one that is shown. */
function walk() {
  const { artifact } = current();
  byId("artifact").value = artifact;
  const at = list.findIndex(({ id }) => id === artifact);
  const brief = matchMedia("(max-width: 47.99rem)").matches; // the heading below has the rest
  list.forEach(({ label }, i) => (byId("artifact").options[i].textContent = brief && i === at ? label : names[i]));
  for (const [where, to] of Object.entries({ before: list[at - 1], after: list[at + 1] })) {
    for (const node of document.querySelectorAll(`#view-figure .${where}`)) {
      node.classList.toggle("gone", at < 0 || !to);
      if (!to) continue;
      node.setAttribute("href", `#view=figure&artifact=${encodeURIComponent(to.id)}`);
      node.textContent = where === "before" ? `← ${to.label}` : `${to.label} →`;
    }
  }
}

/** Fill the list of figures and tables, which the first one does not wait for. */
export async function fill() {
  list = (await ask("artifacts", {}).catch(() => ({ artifacts: [] }))).artifacts;
  names = list.map(({ label, title, drawn }) => `${label}${drawn ? "" : ", a table"}: ${title}`);
  choices("artifact", Object.fromEntries(list.map(({ id }, i) => [id, names[i]])), current().artifact);
  walk();
}
