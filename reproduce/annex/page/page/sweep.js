// One field varied, on as many GPUs: the curve of a metric over its values, and a slider that sets it.
import { draw } from "./chart.js";
import { byId, element, inputOf, labelled, more, option, selectOf } from "./elements.js";
import { change, cluster, configure, current, offered, update } from "./page.js";

/** @type {SweepAnswer | undefined} */
let shown;
let asked = ""; // what the shown curve is about: everything but the field's own value

export function section() {
  const slider = element("input", {
    id: "sweep-value",
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "Value of the field",
  });
  slider.addEventListener("input", () => {
    const point = shown?.points[slider.valueAsNumber];
    if (point) configure(point.changes);
  });
  const made = more(
    "One field varied",
    "sweeping",
    element("div", { class: "fields" }, labelled("Field", "sweep-field"), labelled("Curve of", "sweep-metric")),
    element("p", { class: "note", id: "sweep-shown" }),
    slider,
    element("div", { id: "sweep-chart", class: "plot" }),
  );
  made
    .querySelector("#sweep-field")
    ?.addEventListener("change", () => change({ sweep: selectOf("sweep-field").value }));
  made.querySelector("#sweep-metric")?.addEventListener("change", () => shown && show(shown));
  return made;
}

export function refresh() {
  const { sweep, configuration } = current();
  selectOf("sweep-field").value = sweep;
  if (!sweep) return;
  byId("sweeping").setAttribute("open", "");
  const { [sweep]: value, ...others } = configuration;
  const about = JSON.stringify({ sweep, others, ...cluster() });
  if (about === asked && shown?.points.some((point) => point.value === value)) return show(shown);
  return update("sweep", "sweep", { configuration, ...cluster(), field: sweep }, (answer) => {
    asked = about;
    show(answer);
  });
}

/** @param {SweepAnswer} answer */
function show(answer) {
  shown = answer;
  const { points, field, label } = answer;
  const definition = offered()?.fields[field];
  const now = current().configuration[field] ?? definition?.default ?? "";
  const words = (/** @type {Scalar} */ value) =>
    definition?.choice_words[String(value)] ?? (typeof value === "boolean" ? (value ? "on" : "off") : String(value));
  const slider = inputOf("sweep-value");
  slider.max = String(points.length - 1);
  slider.value = String(points.findIndex(({ value }) => value === now));
  slider.setAttribute("aria-valuetext", `${label} ${words(now)}`);
  byId("sweep-shown").textContent = points.length
    ? `${label}: ${words(now)}`
    : "No value of this field is legal with the others as they are.";
  const metric = offered()?.metrics.find(({ name }) => name === selectOf("sweep-metric").value);
  if (!metric || !points.length) return byId("sweep-chart").replaceChildren();
  const marks = points.map((point) => ({
    x: words(point.value),
    y: point[metric.name] / metric.factor,
    status: point.status,
  }));
  draw(byId("sweep-chart"), {
    label: `${metric.heading} over ${label}`,
    quantity: metric.heading,
    x: `${label} (dashed rings: out of memory)`,
    scale: "point",
    height: 280,
    now: words(now),
    series: [{ name: "", marks }],
  });
}

export function fill() {
  const { fields, metrics, swept } = /** @type {Offer} */ (offered());
  const names = Object.keys(fields).map((name) => option(name, fields[name].words));
  selectOf("sweep-field").replaceChildren(option("", "choose a field"), ...names);
  selectOf("sweep-field").value = current().sweep;
  selectOf("sweep-metric").replaceChildren(
    ...metrics.filter(({ name }) => swept.includes(name)).map(({ name, heading }) => option(name, heading)),
  );
  if (shown) show(shown); // the curve may have come before what the metrics are called
}
