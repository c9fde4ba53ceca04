// The view of figures and tables: what was found, ours over the paper's, the claims, and the points.
import { draw } from "./chart.js";
import { card } from "./claims.js";
import { button, byId, copy, download, element, labelled, more, option, selectOf, table, tell } from "./elements.js";
import { exports } from "./exports.js";
import { picker } from "./machine.js";
import { change, cluster, current, update } from "./page.js";
import { ask } from "./python.js";
import { figures, fitted, path, rect, svg } from "./svg.js";

/** @type {ArtifactAnswer | undefined} */
let shown;
/** @type {ArtifactAnswer[]} */
let list = [];

/** @param {string} what @param {string} words @param {...Node} drawn */
const reading = (what, words, ...drawn) =>
  element(
    "li",
    {},
    svg("svg", { width: 40, height: 24, "aria-hidden": "true" }, ...drawn),
    element("span", {}, element("b", {}, what), ` ${words}`),
  );

export function make() {
  const place = () => byId("chart");
  const name = () => shown?.id.replaceAll("/", "_") ?? "figure";
  const command = button("Copy command", () => shown && copy(command, shown.command), { id: "command" });
  byId("view-figure").append(
    element(
      "div",
      { class: "head" },
      element(
        "nav",
        { class: "pick", "aria-label": "Figures", id: "figure-nav" },
        link("before"),
        labelled("Figure or table", "artifact"),
        link("after"),
      ),
      element("h1", { id: "artifact-title" }, "Figure 12"),
      element("p", { class: "lede", id: "artifact-description" }),
    ),
    element(
      "div",
      { class: "cols chart" },
      element(
        "figure",
        { class: "titled" },
        element("div", { id: "chart", class: "plot" }),
        element(
          "figcaption",
          { class: "row ends" },
          element("span", { class: "note", id: "chart-note", role: "status" }),
          element(
            "span",
            { class: "row tight" },
            ...exports(place, name),
            button("CSV", () => saved(), { id: "export-csv" }),
            command,
          ),
        ),
      ),
      element(
        "section",
        { "aria-labelledby": "read" },
        element("h2", { id: "read" }, "How to read it"),
        element("ul", { class: "read", id: "reading" }),
        picker("figure"),
        element("p", { class: "note" }, "On another machine the rings stay, the lines move."),
      ),
    ),
    element(
      "section",
      { "aria-labelledby": "claims-title" },
      element(
        "div",
        { class: "row ends" },
        element("h2", { id: "claims-title" }),
        element("span", { class: "note", id: "claims-how" }),
      ),
      element("div", { class: "claims", id: "claims" }),
    ),
    element("div", { id: "figure-details" }, more("The points as a table", "points")),
    element("ul", { class: "note", id: "notes" }),
  );
  byId("figure-nav").querySelector("span")?.classList.add("off");
  selectOf("artifact").addEventListener("change", () => change({ artifact: selectOf("artifact").value, claim: "" }));
  byId("figure-nav").addEventListener("keydown", ({ key, target }) => {
    const to = { ArrowLeft: "before", ArrowRight: "after" }[key];
    if (to && !(target instanceof HTMLSelectElement)) byId(`figure-${to}`).click();
  });
}

/** @param {string} where */
const link = (where) => element("a", { class: "quiet", id: `figure-${where}`, href: "#view=figure" }, "");

export function refresh() {
  if (shown && shown.id !== current().artifact) byId("chart").classList.add("stale");
  return update("figure", "artifact", { id: current().artifact, ...cluster() }, show);
}

/** @param {ArtifactAnswer} answer */
function show(answer) {
  shown = answer;
  walk();
  byId("artifact-title").textContent = answer.finding || answer.title;
  byId("artifact-description").textContent =
    `${answer.label}: ${answer.finding ? `${answer.title}. ` : ""}${answer.description}`;
  byId("claims").replaceChildren(...cards(answer));
  const kept = new Set(answer.claims.map(({ sentence }) => sentence)).size;
  const hold = answer.claims.filter(({ verdict }) => verdict === "holds").length;
  byId("claims-title").textContent = kept
    ? `What is said about it: ${hold} of ${answer.claims.length} claims hold`
    : "Nothing is claimed about it";
  byId("claims-how").textContent = answer.claims.some(({ bar }) => bar)
    ? "The bar shows what a claim needs (green), and what came out (dot)."
    : "";
  byId("points").lastElementChild?.replaceChildren(table("Points", ...rows(answer)));
  tell("points", `${answer.points.length} points`);
  byId("notes").replaceChildren(...answer.notes.map((note) => element("li", {}, note)));
  byId("chart-note").textContent = near(answer);
  byId("reading").replaceChildren(...legendless(answer));
  byId("chart").classList.remove("stale");
  const chart = chartOf(answer);
  if (chart.series.length) draw(byId("chart"), { ...chart, note: byId("chart-note") });
  else fitted(byId("chart"), () => [table(answer.label, ...rows(answer))]);
  document.querySelector("[data-chosen]")?.scrollIntoView({ block: "center" });
}

/** What marks mean, of those that are there. @param {ArtifactAnswer} answer */
function legendless({ points, quantities: [drawn], fidelity, x }) {
  if (!x) return [element("li", {}, "A table: it has no axis to draw along.")];
  const made = [
    reading(
      "Dot and line",
      `${fidelity === "derived" ? "By a formula" : "Simulated here"}, just now.`,
      path("M0 12H40", "line s2"),
      svg("circle", { class: "f2", cx: 20, cy: 12, r: 3.5 }),
    ),
  ];
  if (points.some(({ paper }) => drawn.name in paper))
    made.push(
      reading(
        "Ring",
        "The paper’s value. A dot inside its ring agrees.",
        svg("circle", { class: "pub s2", cx: 20, cy: 12, r: 7 }),
      ),
    );
  const sure = points.find(({ intervals }) => intervals[drawn.name]);
  if (sure) {
    const [low, high] = sure.intervals[drawn.name].map((end) => Math.abs(100 * (end / sure.metrics[drawn.name] - 1)));
    made.push(
      reading(
        "Band",
        `Where 9 of 10 real values are expected, of programs whose runs were scored: ${figures(low)}% below to ${figures(high)}% above.`,
        rect(0, 0, 40, 24, "ar f2"),
      ),
    );
  }
  return made;
}

/** How near ours are to the paper's, in a sentence. @param {ArtifactAnswer} answer */
export function near({ points, quantities: [{ name }] }) {
  const both = points.filter((point) => point.status === "ok" && point.paper[name] && point.metrics[name]);
  const off = both.map((point) => 100 * Math.abs(point.metrics[name] / point.paper[name] - 1));
  if (!off.length) return `${points.length} points; the paper prints none of them.`;
  const mean = off.reduce((sum, each) => sum + each, 0) / off.length;
  return `${off.length} points: ${mean.toFixed(1)}% from the paper on average, ${Math.max(...off).toFixed(1)}% at worst.`;
}

/** @param {ArtifactAnswer} answer @returns {import("./chart.js").Chart} */
export function chartOf({ label, x, points, fidelity, looks, cluster: on, quantities: [quantity] }) {
  const { name, factor } = quantity;
  const value = (/** @type {number | undefined} */ given) => (typeof given === "number" ? given / factor : null);
  const names = x ? [...new Set(points.map((point) => point.series))] : [];
  const series = names.map((each) => ({
    name: each || fidelity,
    dashed: looks[each]?.dotted,
    marks: points
      .filter((point) => point.series === each)
      .map((point) => ({
        x: x?.scale === "category" ? point.label : point.parameters[x?.parameter ?? ""],
        y: point.status === "ok" ? value(point.metrics[name]) : null,
        paper: value(point.paper[name]),
        status: point.status,
        ...(point.intervals[name] && {
          low: point.intervals[name][0] / factor,
          high: point.intervals[name][1] / factor,
        }),
      })),
  }));
  const drawn = series.filter(({ marks }) => marks.some((mark) => mark.y !== null || mark.paper !== null));
  const axis = quantity.axis || quantity.heading;
  return {
    label: `${label}: ${axis} over ${x?.label}`,
    quantity: axis,
    unit: quantity.shown,
    x: x?.label ?? "",
    scale: x?.scale ?? "linear",
    series: drawn,
    faded: Boolean(on) && on !== "selene",
  };
}

/** Claims, those of one sentence together. @param {ArtifactAnswer} answer */
function cards({ claims }) {
  const sentences = [...new Set(claims.map(({ sentence }) => sentence))];
  return sentences.map((sentence) =>
    card(
      claims.filter((claim) => claim.sentence === sentence),
      current().claim,
    ),
  );
}

/** The points as headings and cells. @param {ArtifactAnswer} answer @returns {[string[], (Scalar | null)[][]]} */
function rows({ columns, quantities, fidelity, points }) {
  const [first] = quantities;
  const parameters = Object.entries(columns);
  const format = (/** @type {number | undefined} */ value, /** @type {MetricShown} */ { factor, digits }) =>
    value == null ? "" : (value / factor).toFixed(digits).replace("-", "−");
  const headings = [
    ...["Series", "Point", ...parameters.map(([heading]) => heading)],
    ...quantities.map((quantity) => `${quantity.heading} [${fidelity}]`),
    ...[`${first.heading} [paper]`, "Off, %", "Agreement"],
  ];
  const cells = points.map((point) => {
    const [ours, paper] = [point.metrics[first.name], point.paper[first.name]];
    return [
      ...[point.series, point.label, ...parameters.map(([, name]) => point.parameters[name] ?? "")],
      ...quantities.map((quantity) => format(point.metrics[quantity.name], quantity)),
      ...[format(paper, first), ours && paper ? (100 * (ours / paper - 1)).toFixed(1).replace("-", "−") : ""],
      point.reason ?? point.agreement,
    ];
  });
  const told = headings.map((_, i) => cells.some((row) => row[i] !== ""));
  const kept = (/** @type {any[]} */ row) => row.filter((_, i) => told[i]);
  return [kept(headings), cells.map(kept)];
}

function saved() {
  if (!shown) return;
  const quoted = (/** @type {Scalar | null} */ cell) =>
    /[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell ?? "");
  const [headings, cells] = rows(shown);
  const lines = [headings, ...cells].map((row) => row.map(quoted).join(","));
  download(`${shown.id.replaceAll("/", "_")}.csv`, `${lines.join("\n")}\n`.replaceAll("−", "-"), "text/csv");
}

/** Previous and next, and the name of the one that is shown. */
function walk() {
  const { artifact } = current();
  selectOf("artifact").value = artifact;
  const at = list.findIndex(({ id }) => id === artifact);
  const neighbours = /** @type {const} */ ([
    ["before", list[at - 1]],
    ["after", list[at + 1]],
  ]);
  for (const [where, to] of neighbours) {
    const node = byId(`figure-${where}`);
    node.classList.toggle("gone", at < 0 || !to);
    if (!to) continue;
    node.setAttribute("href", `#view=figure&artifact=${encodeURIComponent(to.id)}`);
    node.textContent = where === "before" ? `← ${to.label}` : `${to.label} →`;
  }
}

/** Fill the list of figures and tables, which the first one does not wait for. */
export async function fill() {
  const answer = await ask("artifacts", {}).catch(() => ({ artifacts: [] }));
  list = answer.artifacts;
  const of = (/** @type {ArtifactAnswer} */ { id, label, title, drawn }) =>
    option(id, `${label}${drawn ? "" : ", a table"}: ${title}`);
  selectOf("artifact").replaceChildren(...list.map(of));
  walk();
}
