// One field varied, on as many GPUs: the curve of a metric over its values, and a slider that sets it.
import { draw } from "./chart.js";
import { byId, choices, el, field, more } from "./elements.js";
import { change, cluster, configure, current, offered, point, update } from "./page.js";

/** @type {any} */
let shown; // an answer
let asked = ""; // what the shown curve is about: everything but the field's own value

export function section() {
  const moved = (/** @type {any} */ { target }) =>
    shown.points[target.value] && configure(shown.points[target.value].changes);
  return more(
    "One field varied",
    "sweeping",
    el(
      "div.fields",
      field("Field", el("select#sweep-field", { change: ({ target }) => change({ sweep: target.value }) })),
      field("Curve of", el("select#sweep-metric", { change: () => shown && show(shown) })),
    ),
    el("p.note#sweep-shown"),
    el("input#sweep-value", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "Value of the field",
      hidden: true,
      input: moved,
    }),
    el("div.plot#sweep-chart"),
  );
}

export function refresh() {
  const { sweep, configuration } = current();
  byId("sweep-field").value = sweep;
  if (!sweep) return;
  byId("sweeping").open = true;
  const { [sweep]: value, ...others } = configuration;
  const about = JSON.stringify({ sweep, others, ...cluster() });
  if (about === asked && shown?.points.some((/** @type {Answers} */ each) => each.value === value)) return show(shown);
  return update("sweep", "sweep", { ...point(), field: sweep }, (answer) => {
    asked = about;
    show(answer);
  });
}

/** @param {SweepAnswer} answer */
function show(answer) {
  shown = answer;
  const { points, field: name, label } = answer;
  const definition = offered()?.fields[name];
  const now = current().configuration[name] ?? definition?.default ?? "";
  const words = (/** @type {any} */ value) =>
    definition?.choice_words[value] ?? (value === true ? "on" : value === false ? "off" : String(value));
  const slider = byId("sweep-value");
  slider.hidden = !points.length;
  slider.max = points.length - 1;
  slider.value = points.findIndex(({ value }) => value === now);
  const said = `${label}: ${words(now)}`;
  slider.setAttribute("aria-valuetext", said);
  byId("sweep-shown").textContent = points.length
    ? said
    : "No value of this field is legal with the others as they are.";
  const metric = offered()?.metrics.find((each) => each.name === byId("sweep-metric").value);
  if (!metric || !points.length) return byId("sweep-chart").replaceChildren();
  const marks = points.map((each) => ({
    x: words(each.value),
    y: each[metric.name] / metric.factor,
    status: each.status,
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
  const { fields, metrics } = /** @type {Offer} */ (offered());
  const names = Object.entries(fields).map(([name, { words }]) => [name, words]);
  choices("sweep-field", { "": "choose a field", ...Object.fromEntries(names) }, current().sweep);
  choices("sweep-metric", Object.fromEntries(metrics.map(({ name, heading }) => [name, heading])), metrics[0].name);
  if (shown) show(shown); // the curve may have come before what the metrics are called
}
