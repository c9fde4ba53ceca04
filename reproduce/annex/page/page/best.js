// The best layout of the model on as many GPUs: the planner's list, each one to be used whole.
import { button, byId, element } from "./elements.js";
import { change, cluster, current, offered, update } from "./page.js";

let asked = ""; // what the shown plans are about
const LETTERS = ["p", "t", "d", "v", "b"];

/** What is asked of the planner: all but the layout. */
function request() {
  const fields = offered()?.fields ?? {};
  const model = Object.keys(Object.values(offered()?.models ?? {})[0] ?? {});
  const usual = Object.entries(fields).map(([name, { default: value }]) => [name, value]);
  const values = { ...Object.fromEntries(usual), ...current().configuration };
  const sizes = model.map((name) => [name, values[name]]).filter(([, value]) => value != null);
  const { p, t, d, B } = values;
  return { model: Object.fromEntries(sizes), gpus: p * t * d, batch: B, ...cluster() };
}

/** Mark plans that were made for something else than what is shown now. */
export function refresh() {
  byId("plans").toggleAttribute("data-stale", Boolean(asked) && asked !== JSON.stringify(request()));
}

/** @param {PlanAnswer} answer */
function show({ simulated, plans }) {
  const list = plans.map((plan) =>
    element(
      "li",
      {},
      told(plan),
      " ",
      button("Use this layout", () => change({ configuration: plan.configuration })),
    ),
  );
  byId("plans").replaceChildren(
    element("h2", {}, `Best of ${simulated} simulated layouts`),
    element("p", { class: "stale" }, "Made for another model, cluster or number of GPUs: ask again."),
    element("ol", {}, ...list),
  );
  refresh();
}

/** A plan in words: its layout, all settings that are not at their default, and its numbers. @param {any} plan */
function told({ configuration, iteration_time, model_flops_utilization, peak_memory }) {
  const fields = offered()?.fields ?? {};
  const layout = LETTERS.map((name) => `${name}=${configuration[name]}`).join(" ");
  const settings = Object.keys(configuration)
    .filter((name) => fields[name]?.group === "Techniques" || name === "schedule")
    .filter((name) => configuration[name] !== fields[name].default)
    .map((name) => `${uncapitalised(fields[name].words)}${said(configuration[name])}`);
  const memory = `${(peak_memory / 1e9).toFixed(1)} GB`;
  const numbers = `${iteration_time.toPrecision(4)} s, MFU ${(100 * model_flops_utilization).toFixed(1)}%, ${memory}`;
  return element("span", {}, element("b", {}, numbers), `: ${[layout, ...settings].join(", ")}`);
}

/** @param {string} words */
const uncapitalised = (words) => words[0].toLowerCase() + words.slice(1);

/** @param {Scalar} value */
const said = (value) => (value === true ? "" : value === false ? " off" : ` ${value}`);

export function listen() {
  byId("best").addEventListener("click", () => {
    if (!offered()) return;
    const given = request();
    void update("plan", "plan", given, (answer) => {
      asked = JSON.stringify(given);
      show(answer);
    });
  });
}
