// A configuration that was kept beside the one shown: a waterfall from one to the other, and the numbers.
import { across, waterfall } from "./bars.js";
import { button, el, fill as put, table } from "./elements.js";
import { change, current, point, update } from "./page.js";
import { capital, fitted } from "./svg.js";

export const keep = () => change({ against: point() });

const recipe = () =>
  update("recipe", "recipe", point(), ({ configuration }) => change({ against: { ...point(), configuration } }));

export function refresh() {
  const { against, tokens, price } = current();
  if (against.configuration) return update("compare", "compare", { ...point(), tokens, price, other: against }, show);
  put(
    "comparison",
    el("h2", "Compare two layouts"),
    el("p", "Keep this one, change something, and both stand side by side."),
    el("p.row", button("Keep to compare", keep, ".btn"), button("Compare with 2021’s recipe", recipe)),
  );
}

/** @param {ComparisonAnswer} answer */
function show({ heading, note, metrics, ends, parts }) {
  const rows = metrics.map(([name, ...row]) => [capital(name), ...row]);
  const drawn = (/** @type {number} */ width) =>
    ends.every(Boolean) ? across(waterfall(["Shown", "Kept"], ends, parts.slice(0, 6)), width) : [];
  put(
    "comparison",
    el("div", el("h2", heading), el("p.note", note)),
    el(
      "div.pair",
      fitted(el("div.plot"), drawn),
      table("Both side by side", [["", "Shown", "Kept", "Change"], ...rows]),
    ),
    el(
      "p.row.tight",
      button("Go back to the kept one", () => change({ changes: {}, text: "", ...current().against })),
      button("Stop comparing", () => change({ against: {} })),
    ),
  );
}
