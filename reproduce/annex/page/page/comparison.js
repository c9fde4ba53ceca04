// A configuration that was kept beside the one shown: a waterfall from one to the other, and the numbers.
import { lookOf, waterfall } from "./bars.js";
import { button, byId, element, table } from "./elements.js";
import { change, cluster, current, update } from "./page.js";
import { figures, fitted } from "./svg.js";

export const keep = () => change({ against: { configuration: current().configuration, ...cluster() } });

export function refresh() {
  const { against, configuration, tokens, price } = current();
  if (!against.configuration) return invite();
  return update("compare", "compare", { configuration, tokens, price, ...cluster(), other: against }, show);
}

function invite() {
  byId("comparison").replaceChildren(
    element("h2", {}, "Compare two layouts"),
    element("p", {}, "Keep this one, change something, and both stand side by side."),
    element("p", { class: "row" }, button("Keep to compare", keep, { class: "btn" })),
  );
}

/** @param {ComparisonAnswer} answer */
function show({ differences, metrics, phases, statuses }) {
  const { against } = current();
  const [before, after] = phases;
  const sum = (/** @type {Phase[]} */ parts) => parts.reduce((total, { seconds }) => total + seconds, 0);
  const parts = after.map(({ name, label, seconds }) => ({
    look: lookOf(name),
    label,
    size: (before.find((phase) => phase.name === name)?.seconds ?? 0) - seconds,
  }));
  const told = parts
    .filter(({ size }) => Math.abs(size) > 0.002 * sum(after))
    .sort((one, other) => Math.abs(other.size) - Math.abs(one.size));
  const place = element("div", { class: "plot" });
  const more = sum(before) - sum(after);
  const why = told.slice(0, 2).map(({ label }) => label);
  const what =
    Math.abs(more) < 0.005 * sum(after) ? "as long" : `${figures(Math.abs(more))} s ${more > 0 ? "longer" : "less"}`;
  const heading = differences.length
    ? `The one you kept takes ${what}${why.length && what !== "as long" ? `, for ${why.join(" and ")}` : ""}`
    : "Kept: now change something";
  const rows = metrics.map(({ label, values, change: by }) => [label, values[1] ?? "–", values[0] ?? "–", by]);
  const changed = differences.map(({ label, values }) => `${label} ${values[1]}, kept ${values[0]}`);
  const status = statuses[0] === statuses[1] ? [] : [`shown: ${statuses[1]}; kept: ${statuses[0]}`];
  byId("comparison").replaceChildren(
    element(
      "div",
      {},
      element("h2", {}, heading),
      element(
        "p",
        { class: "note" },
        `Seconds of an iteration, from the layout shown to the one kept. ${[...changed, ...status].join("; ")}`,
      ),
    ),
    element("div", { class: "pair" }, place, table("Both side by side", ["", "Shown", "Kept", "Change"], rows)),
    element(
      "p",
      { class: "row tight" },
      button("Go back to the kept one", () => change({ changes: {}, text: "", ...against })),
      button("Stop comparing", () => change({ against: {} })),
    ),
  );
  if (before.length && after.length)
    fitted(place, (width) => waterfall(["Shown", "Kept"], [sum(after), sum(before)], told.slice(0, 6), width));
}
