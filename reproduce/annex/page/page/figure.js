// The view of a figure or table: its chart, the paper's claims with their verdicts, and all points.
import { draw, save } from "./chart.js";
import { byId, download, element, option, selectOf, table } from "./elements.js";
import { change, cluster, current, fail, update } from "./page.js";
import { ask } from "./python.js";

const PAPERS_CLUSTER = "selene";

/** @type {ArtifactAnswer | undefined} */
let shown;
/** @type {import("./chart.js").Figure | null} */
let chart = null;

export const refresh = () =>
  update("figure", "artifact", { id: current().artifact, ...cluster() }, (answer) => void show(answer));

/** @param {ArtifactAnswer} answer */
async function show(answer) {
  shown = answer;
  selectOf("artifact").value = answer.id;
  byId("artifact-title").textContent = `${answer.label}: ${answer.title}`;
  byId("artifact-description").textContent = answer.description;
  byId("command").textContent = answer.command;
  byId("claims").replaceChildren(...claims(answer));
  byId("points").replaceChildren(...table(...rows(answer)));
  byId("notes").replaceChildren(...answer.notes.map((note) => element("li", {}, note)));
  byId("chart-origin").textContent = origin(answer);
  chart = await draw(answer, byId("chart").clientWidth || 640).catch((error) => (fail(error.message), null));
  if (shown === answer) byId("chart").replaceChildren(...(chart ? [chart] : []));
}

/** Where what is drawn comes from, and how to read it. @param {ArtifactAnswer} answer */
function origin({ fidelity, cluster: on, points, quantities: [drawn] }) {
  const bands = points.some(({ intervals }) => intervals[drawn.name]);
  const paper = points.some((point) => drawn.name in point.paper);
  const elsewhere = on && on !== PAPERS_CLUSTER;
  const said = [`Ours: ${fidelity}${on ? ` on ${on}` : ""}, made now in this page`];
  if (bands) said.push("; bands: where 90% of real values are expected, of programs whose runs were scored");
  said.push(".");
  if (paper) said.push(` Hollow and dashed: the paper${elsewhere ? ", which ran on another machine, Selene" : ""}.`);
  if (points.some(({ status }) => status === "oom")) said.push(" What has no mark runs out of memory.");
  return said.join("");
}

/** @param {ArtifactAnswer} answer */
function claims(answer) {
  if (!answer.claims.length) return [element("li", {}, "This experiment judges no sentence.")];
  return answer.claims.map(({ verdict, shown, sentence, place, explanation }) =>
    element(
      "li",
      { "data-verdict": verdict },
      element("span", { class: "verdict" }, shown),
      ` ${sentence} `,
      element("small", {}, `${place}. ${explanation}`),
    ),
  );
}

/** The points as headings and cells. @param {ArtifactAnswer} answer @returns {[string[], Scalar[][]]} */
function rows({ columns, quantities, fidelity, points }) {
  const [first] = quantities;
  const parameters = Object.entries(columns);
  const headings = [
    ...["series", "point", ...parameters.map(([heading]) => heading)],
    ...quantities.map((quantity) => `${quantity.heading} [${fidelity}]`),
    ...[`${first.heading} [paper]`, "verdict"],
  ];
  const cells = points.map((point) => [
    ...[point.series, point.label, ...parameters.map(([, name]) => point.parameters[name] ?? "")],
    ...quantities.map((quantity) => format(point.metrics[quantity.name], quantity)),
    ...[format(point.paper[first.name], first), point.reason ?? point.agreement],
  ]);
  return [headings, cells];
}

/** @param {number | null | undefined} value @param {MetricShown} quantity */
const format = (value, { factor, digits }) => (value == null ? "" : (value / factor).toFixed(digits));

/** @param {"csv" | "svg" | "png"} kind */
function exported(kind) {
  if (!shown) return;
  if (kind === "csv") {
    const quoted = (/** @type {Scalar} */ cell) =>
      /[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell);
    const [headings, cells] = rows(shown);
    const lines = [headings, ...cells].map((row) => row.map(quoted).join(","));
    download(`${shown.id}.csv`, `${lines.join("\n")}\n`, "text/csv");
  } else if (chart) void save(chart, shown.id, kind);
  else fail(`${shown.label} is a table here; needs a chart; try CSV`);
}

export function listen() {
  selectOf("artifact").addEventListener("change", () => change({ artifact: selectOf("artifact").value }));
  for (const kind of /** @type {const} */ (["csv", "svg", "png"]))
    byId(`export-${kind}`).addEventListener("click", () => exported(kind));
}

/** Fill the list of figures and tables, which the first one does not wait for. */
export async function fill() {
  const answer = await ask("artifacts", {}).catch(() => ({ artifacts: [] }));
  const options = answer.artifacts.map((/** @type {ArtifactAnswer} */ { id, label, title, drawn }) =>
    option(id, `${label}${drawn ? "" : ", as a table"}: ${title}`),
  );
  selectOf("artifact").replaceChildren(...options);
  selectOf("artifact").value = current().artifact;
}
