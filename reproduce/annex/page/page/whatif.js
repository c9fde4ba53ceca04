// The view of a configuration of one's own: how long an iteration takes, what of, and whether it fits.
import * as best from "./best.js";
import * as comparison from "./comparison.js";
import { byId, download, element, inputOf } from "./elements.js";
import * as form from "./form.js";
import { change, cluster, current, isShipped, offered, update } from "./page.js";
import * as sweep from "./sweep.js";

/** @typedef {{ configuration: Configuration, cluster: string, changes: object, text: string }} Asked */

/** @type {Asked | undefined} */
let last; // what the shown answer is about
/** @type {WhatIfAnswer | undefined} */
let shown;
/** @type {Record<string, number>} */
const DIGITS = { iteration_time: 5, model_flops_utilization: 3, peak_memory: 3 };

/** @returns {Asked} */
const asked = () => ({ configuration: current().configuration, ...cluster() });
const ofRun = () => ({ tokens: current().tokens, price: current().price });

export function refresh() {
  form.show();
  inputOf("tokens").value = current().tokens;
  inputOf("price").value = current().price;
  const now = asked();
  const before = last && JSON.stringify(last) !== JSON.stringify(now) ? last : null;
  best.refresh();
  const answer = update("whatif", "what_if", { ...now, ...ofRun(), before }, (found) => {
    last = now;
    if (before) byId("changed").textContent = found.changed;
    show(found);
  });
  comparison.refresh();
  sweep.refresh();
  return answer.then((how) => how === "failed" && showNone());
}

/** There is no answer to what is asked: an earlier one is none to this. */
function showNone() {
  shown = undefined;
  byId("answer-status").textContent = "Not simulated: the red line says what is wrong.";
  byId("answer-status").dataset.status = "invalid";
  for (const name of ["answer", "limited", "run", "phases", "memory"]) byId(name).replaceChildren();
  for (const name of ["limit", "sizes", "changed"]) byId(name).textContent = "";
  byId("parts").hidden = true;
  byId("summary").textContent = "Not simulated";
}

/** @param {WhatIfAnswer} answer */
function show(answer) {
  shown = answer;
  const known = answer.iteration_time !== null;
  byId("answer-status").textContent = status(answer);
  byId("answer-status").dataset.status = answer.status;
  byId("answer").replaceChildren(...(known ? metrics(answer).map(box) : []));
  byId("limit").textContent = answer.limit ?? "";
  byId("sizes").textContent = answer.sizes ?? "";
  byId("limited").replaceChildren();
  byId("parts").hidden = !known;
  byId("run").replaceChildren(...runMetrics(answer).map(box));
  byId("phases").replaceChildren(...(known ? time(answer) : []));
  byId("memory").replaceChildren(...(known ? memory(answer) : []));
  byId("summary").textContent = known ? summary(answer) : answer.status;
}

/** @param {WhatIfAnswer} answer */
function status({ status, reason, intervals }) {
  if (status !== "ok") return `${status === "oom" ? "Out of memory" : status}: ${reason}`;
  const said = " In brackets: where 90% of real values are expected, of programs whose runs were scored.";
  const brackets = Object.keys(intervals ?? {}).length ? said : "";
  return `Simulated; it fits.${reason ? ` ${reason}.` : ""}${brackets}`;
}

/** @param {WhatIfAnswer} answer */
function summary({ iteration_time, model_flops_utilization, peak_memory, capacity }) {
  const used = `${(peak_memory / 1e9).toFixed(1)} of ${(capacity / 1e9).toFixed(1)} GB`;
  return `${Number(iteration_time).toPrecision(4)} s · MFU ${(100 * model_flops_utilization).toFixed(1)}% · ${used}`;
}

/** @param {WhatIfAnswer} answer @returns {[string, string, string][]} */
function metrics(answer) {
  return (offered()?.metrics ?? []).map(({ name, heading, factor, digits, sure }) => {
    const value = answer[name] / factor;
    const shown = sure ? value.toPrecision(DIGITS[name] ?? 4) : value.toFixed(digits);
    return [heading, shown, between(answer.intervals?.[name], (end) => (end / factor).toPrecision(3))];
  });
}

/** @param {WhatIfAnswer} answer @returns {[string, string, string][]} */
function runMetrics({ run }) {
  if (!run) return [];
  const shown = (offered()?.of_run ?? []).filter(({ name }) => run[name] != null);
  return shown.map(({ name, heading, factor, digits }) => {
    const show = (/** @type {number} */ value) => (value / factor).toFixed(digits);
    return [heading, show(run[name]), between(run.intervals[name], show)];
  });
}

/** @param {Interval | undefined} interval @param {(end: number) => string} show */
const between = (interval, show) => (interval ? `(${show(interval.low)} to ${show(interval.high)})` : "");

/** @param {[string, string, string]} metric its name, its value, and where real values are expected */
const box = ([name, value, interval]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, value, " ", element("small", {}, interval)));

/** @typedef {{ name: string, label: string, size: number, shown: string }} Part */

/** The phases of an iteration as one bar. @param {WhatIfAnswer} answer */
function time({ phases, iteration_time }) {
  const parts = phases.map((/** @type {any} */ { name, label, seconds }) => {
    return { name, label, size: seconds, shown: `${seconds.toPrecision(3)} s` };
  });
  return stack(parts, Number(iteration_time), "Time of an iteration");
}

/** The memory of the fullest GPU as one bar, against what a run can fill. @param {WhatIfAnswer} answer */
function memory({ memory, peak_memory, capacity, status }) {
  const most = Math.max(peak_memory, capacity);
  const parts = memory.map((/** @type {any} */ { name, label, bytes }) => {
    return { name, label, size: bytes, shown: `${(bytes / 1e9).toPrecision(3)} GB` };
  });
  const [bar, legend] = stack(parts, most, "Memory of the fullest GPU");
  const limit = element("span", { class: "capacity" });
  limit.style.setProperty("--at", String(capacity / most));
  bar.append(limit);
  bar.classList.toggle("over", status === "oom");
  const used = `${(peak_memory / 1e9).toFixed(1)} GB of the ${(capacity / 1e9).toFixed(1)} GB that a run can fill`;
  return [element("p", {}, `${used}${status === "oom" ? ": it does not fit." : "."}`), bar, legend];
}

/**
 * Parts of a whole as one bar, and a list of them with their values.
 *
 * @param {Part[]} parts
 * @param {number} whole
 * @param {string} label
 */
function stack(parts, whole, label) {
  const positive = parts.filter(({ size }) => size > 0);
  const told = positive.map((part) => `${part.label} ${part.shown}`).join(", ");
  const bar = element("div", { class: "stack", role: "img", "aria-label": `${label}: ${told}` });
  const legend = element("ul", { class: "parts" });
  for (const { name, label: said, size, shown } of positive) {
    const segment = element("span", { "data-part": name, title: `${said}: ${shown}` });
    segment.style.setProperty("--share", String(size / whole));
    bar.append(segment);
    const swatch = element("i", { "data-part": name });
    legend.append(element("li", {}, swatch, element("span", {}, said), element("b", {}, shown)));
  }
  return [bar, legend];
}

/** What each change makes of the tokens per second, a bar for each. @param {WhatIfAnswer} answer */
function showLimits({ elasticities = [] }) {
  const most = Math.max(...elasticities.map((row) => Math.abs(row.faster_by)));
  const rows = elasticities.map(({ change: what, faster_by, fits }) => {
    const bar = element("span", { class: faster_by < 0 ? "loss" : "gain" });
    bar.style.setProperty("--share", String(Math.abs(faster_by) / most));
    const sign = faster_by < 0 ? "−" : "+";
    const told = `${sign}${(100 * Math.abs(faster_by)).toFixed(1)}%${fits ? "" : ", does not fit"}`;
    return element("tr", {}, element("th", { scope: "row" }, what), element("td", {}, bar, told));
  });
  const list = element("table", { class: "bars" }, element("tbody", {}, ...rows));
  byId("limited").replaceChildren(element("h2", {}, "Tokens per second with one thing changed"), list);
}

function saveConfiguration() {
  const point = { ...current().configuration, ...(isShipped() ? { cluster: current().cluster } : {}) };
  download("points.json", JSON.stringify([point], null, 1), "application/json");
}

export function fill() {
  form.fill();
  sweep.fill();
  if (shown) show(shown); // the first answer comes before what the metrics are called
  const scenarios = offered()?.scenarios ?? [];
  byId("scenarios").replaceChildren(
    ...scenarios.map(({ title, cluster: name, configuration, tokens }) => {
      const made = element("button", { type: "button" }, title);
      made.addEventListener("click", () => change({ cluster: name, changes: {}, text: "", configuration, tokens }));
      return made;
    }),
  );
}

export function listen() {
  byId("configuration").addEventListener("submit", (event) => event.preventDefault());
  byId("configuration").addEventListener("emptied", showNone);
  byId("limits").addEventListener("click", () =>
    update("limits", "what_if", { ...asked(), ...ofRun(), sensitivity: true }, showLimits),
  );
  inputOf("tokens").addEventListener("change", () => change({ tokens: inputOf("tokens").value.trim() }));
  inputOf("price").addEventListener("change", () => change({ price: inputOf("price").value.trim() }));
  byId("export-json").addEventListener("click", saveConfiguration);
  for (const part of [best, comparison, sweep]) part.listen();
}
