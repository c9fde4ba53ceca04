// The best layout of the model on as many GPUs: the planner's list, each one to be used whole.
import { button, byId, element } from "./elements.js";
import { change, cluster, current, offered, update } from "./page.js";

let asked = ""; // what the shown plans are about

/** What is asked of the planner: all but the layout. */
function request() {
  const fields = offered()?.fields ?? {};
  const model = Object.keys(Object.values(offered()?.models ?? {})[0] ?? {});
  const usual = Object.entries(fields).map(([name, { default: value }]) => [name, value]);
  const values = { ...Object.fromEntries(usual), ...current().configuration };
  const sizes = model.map((name) => [name, values[name]]).filter(([, value]) => value != null);
  const { p, t, c, d, B } = values;
  return { model: Object.fromEntries(sizes), gpus: p * t * c * d, batch: B, ...cluster() };
}

/** Mark plans that were made for something else than what is shown now. */
export function refresh() {
  byId("plans").toggleAttribute("data-stale", Boolean(asked) && asked !== JSON.stringify(request()));
}

/** @param {PlanAnswer} answer */
function show({ simulated, notes, plans }) {
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
    ...notes.map((note) => element("p", {}, note)),
  );
  refresh();
}

/** A plan in words: its numbers, its layout, and its place in the order. @param {any} plan */
function told({ layout, place, iteration_time, model_flops_utilization, peak_memory }) {
  const memory = `${(peak_memory / 1e9).toFixed(1)} GB`;
  const numbers = `${iteration_time.toPrecision(4)} s, MFU ${(100 * model_flops_utilization).toFixed(1)}%, ${memory}`;
  return element("span", {}, element("b", {}, numbers), `: ${layout}${place ? `; ${place}` : ""}`);
}

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
