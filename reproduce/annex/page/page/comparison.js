// A configuration that was kept, side by side with the present one.
import { button, byId, element } from "./elements.js";
import { change, cluster, current, update } from "./page.js";

export function refresh() {
  const { against, configuration, tokens, price } = current();
  if (!against.configuration) return byId("comparison").replaceChildren();
  return update("compare", "compare", { configuration, tokens, price, ...cluster(), other: against }, show);
}

/** @param {ComparisonAnswer} answer */
function show({ differences, metrics, statuses }) {
  const { against } = current();
  const row = (/** @type {string} */ name, /** @type {(Scalar | null)[]} */ cells) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      ...cells.map((cell) => element("td", {}, String(cell ?? "–"))),
    );
  const heading = element("tr", {}, ...["", "kept", "now", ""].map((text) => element("th", { scope: "col" }, text)));
  if (!differences.length) heading.replaceChildren(element("th", {}, "Both are the same so far: change something."));
  const body = [
    ...differences.map(({ label, values }) => row(label, [...values, ""])),
    ...metrics.map(({ label, values, change: by }) => row(label, [...values, by])),
    row("Status", [...statuses, ""]),
  ];
  byId("comparison").replaceChildren(
    element("h2", {}, "Side by side"),
    element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Two configurations side by side" },
      element("table", {}, element("thead", {}, heading), element("tbody", {}, ...body)),
    ),
    element(
      "div",
      { class: "row" },
      button("Go back to the kept one", () => change({ changes: {}, text: "", ...against })),
      button("Stop comparing", () => change({ against: {} })),
    ),
  );
}

export function listen() {
  byId("keep").addEventListener("click", () =>
    change({ against: { configuration: current().configuration, ...cluster() } }),
  );
}
