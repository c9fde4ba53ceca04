// The best layouts of the model on these GPUs, in groups: what cannot be told apart stands together.
import { button, byId, element } from "./elements.js";
import { change, cluster, current, update } from "./page.js";
import { figures, picture, rect } from "./svg.js";

/** @type {Record<string, [string, string]>} */
const GROUPS = {
  near: ["Too near to call", "within what the simulator can tell apart from the one shown"],
  tight: ["Tight", "less than 10% of memory free"],
  faster: ["Surely faster", "beyond the interval of the one shown"],
  slower: ["Surely slower", "beyond the interval of the one shown"],
  2021: ["As in 2021", "the paper’s own means and its takeaways"],
};
let asked = ""; // what the shown layouts are about

const request = () => ({ configuration: current().configuration, ...cluster() });

/** Mark layouts that were made for something else than what is shown now. */
export const refresh = () =>
  byId("plans").classList.toggle("stale", Boolean(asked) && asked !== JSON.stringify(request()));

export function find() {
  const given = request();
  byId("best").textContent = "Searching …";
  return update("best", "best", given, (answer) => {
    asked = JSON.stringify(given);
    show(answer);
  }).finally(() => (byId("best").textContent = "Find the best layout"));
}

/** @param {BestAnswer} answer */
function show({ groups, counts, notes }) {
  const most = Math.max(...groups.flatMap(({ rows }) => rows.map((row) => row.iteration_time)));
  const shown = groups.flatMap(({ rows }) => rows).find((row) => row.mine)?.iteration_time;
  const body = groups.flatMap(({ kind, rows }) => [
    element(
      "tr",
      { class: "band" },
      element("th", { colspan: 6, scope: "rowgroup" }, GROUPS[kind][0], element("span", {}, ` ${GROUPS[kind][1]}`)),
    ),
    ...rows.map((row) => one(row, shown, most)),
  ]);
  const heads = ["Layout, and what differs", "Iteration", "Against shown", "", "Memory", ""].map((words, i) =>
    element("th", { scope: "col", class: i && "n" }, words),
  );
  const faster = groups.find(({ kind }) => kind === "faster");
  const title = faster
    ? `Best layouts: ${faster.rows.length} surely faster than the one shown`
    : "Best layouts: nothing is surely faster than the one shown";
  byId("plans").replaceChildren(
    element(
      "div",
      {},
      element("h2", {}, shown ? title : "Best layouts"),
      element("p", { class: "note" }, `${counts} Layouts read: stages × GPUs per layer × replicas.`),
    ),
    element(
      "table",
      { class: "stack" },
      element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...body),
    ),
    ...notes.map((note) => element("p", { class: "note" }, note)),
  );
  refresh();
  byId("plans").scrollIntoView({ block: "nearest" });
}

/** @param {BestRow} row @param {number | undefined} shown @param {number} most */
function one(row, shown, most) {
  const { layout, differs, iteration_time, peak_memory, configuration, mine } = row;
  const against = shown && !mine ? 100 * (iteration_time / shown - 1) : null;
  const bar = picture(
    96,
    14,
    "",
    rect(0, 2, 96, 10, "sunk"),
    rect(0, 2, (96 * iteration_time) / most, 10, mine ? "f1" : "opt"),
  );
  bar.setAttribute("aria-hidden", "true");
  bar.removeAttribute("role");
  const show = mine
    ? element("span", { class: "u" }, "shown")
    : button("Show this one", () => change({ configuration }));
  return element(
    "tr",
    mine ? { class: "mine" } : {},
    element("td", {}, element("b", {}, layout), element("small", {}, mine ? "the one shown" : differs)),
    element("td", { class: "n" }, element("b", {}, figures(iteration_time)), element("span", { class: "u" }, " s")),
    element("td", { class: "n" }, against === null ? "" : `${against < 0 ? "−" : "+"}${Math.abs(against).toFixed(1)}%`),
    element("td", { class: "wideonly" }, bar),
    element("td", { class: "n" }, figures(peak_memory / 1e9), element("span", { class: "u" }, " GB")),
    element("td", { class: "n act" }, show),
  );
}
