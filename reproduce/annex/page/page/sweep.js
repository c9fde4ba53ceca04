// One field varied: the curve of a metric over its values, and a slider that sets it.
import { curve } from "./chart.js";
import { byId, inputOf, option, selectOf } from "./elements.js";
import { change, cluster, configure, current, fail, offered, update } from "./page.js";

/** @type {SweepAnswer | undefined} */
let shown;
let asked = ""; // what the shown curve is about: everything but the field's own value

export function refresh() {
  const { sweep, configuration } = current();
  selectOf("sweep-field").value = sweep;
  byId("sweep").hidden = !sweep;
  if (!sweep) return;
  const { [sweep]: value, ...others } = configuration;
  const about = JSON.stringify({ sweep, others, ...cluster() });
  if (about === asked && shown?.points.some((point) => point.value === value)) return show(shown);
  return update("sweep", "sweep", { configuration, ...cluster(), field: sweep }, (answer) => {
    asked = about;
    show(answer);
  });
}

/** @param {SweepAnswer} answer */
async function show(answer) {
  shown = answer;
  const { points, field, label } = answer;
  const now = current().configuration[field] ?? offered()?.fields[field].default;
  const slider = inputOf("sweep-value");
  slider.max = String(points.length - 1);
  slider.value = String(points.findIndex(({ value }) => value === now));
  slider.setAttribute("aria-valuetext", `${label} ${now}`);
  byId("sweep-shown").textContent = `${label}: ${now === "" ? "default" : now}`;
  const metric = offered()?.metrics.find(({ name }) => name === selectOf("sweep-metric").value);
  byId("sweep-none").hidden = points.length > 0;
  if (!points.length) return byId("sweep-chart").replaceChildren();
  if (!metric) return;
  const width = byId("sweep-chart").clientWidth || 340;
  const drawn = await curve(answer, metric, now, width).catch((error) => (fail(error.message), null));
  if (shown === answer) byId("sweep-chart").replaceChildren(...(drawn ? [drawn] : []));
}

export function fill() {
  const { fields, metrics, swept } = /** @type {Offer} */ (offered());
  const names = Object.keys(fields).map((name) => option(name, fields[name].words));
  selectOf("sweep-field").replaceChildren(option("", "choose a field"), ...names);
  selectOf("sweep-field").value = current().sweep;
  const shownMetrics = metrics.filter(({ name }) => swept.includes(name));
  selectOf("sweep-metric").replaceChildren(...shownMetrics.map(({ name, heading }) => option(name, heading)));
  if (shown) void show(shown); // the curve may have come before what the metrics are called
}

export function listen() {
  selectOf("sweep-field").addEventListener("change", () => change({ sweep: selectOf("sweep-field").value }));
  selectOf("sweep-metric").addEventListener("change", () => shown && show(shown));
  inputOf("sweep-value").addEventListener("input", () => {
    const point = shown?.points[inputOf("sweep-value").valueAsNumber];
    if (shown && point) configure(point.changes);
  });
}
