// The best layouts of the model on these GPUs, in groups: what cannot be told apart stands together.
import { button, byId, el, fill as put } from "./elements.js";
import { change, point, update } from "./page.js";
import { figures, picture, rect, signed } from "./svg.js";

let asked = ""; // what the shown layouts are about

/** Mark layouts that were made for something else than what is shown now. */
export const refresh = () =>
  byId("plans").classList.toggle("stale", Boolean(asked) && asked !== JSON.stringify(point()));

/** @param {(why: string) => void} tell where none is found */
export function find(tell) {
  const other = byId("gpus-field").classList.contains("bad") && byId("gpus").valueAsNumber; // which the layout does not have
  const given = { ...point(), ...(other > 0 && { gpus: other }) };
  byId("best").textContent = "Searching …";
  const found = (/** @type {any} */ answer) => {
    if (other) return change({ configuration: answer.first.configuration });
    asked = JSON.stringify(given);
    show(answer);
  };
  const done = () => (byId("best").textContent = "Find the best layout");
  return update("best", "best", given, found, tell).finally(done);
}

/** @param {BestAnswer} answer */
function show({ groups, counts, notes }) {
  const rows = groups.flatMap((group) => group.rows);
  const most = Math.max(...rows.map((row) => row.iteration_time));
  const shown = rows.find((row) => row.mine)?.iteration_time;
  const faster = groups.find(({ kind }) => kind === "faster")?.rows.length ?? "nothing is";
  const band = (/** @type {[string, string]} */ [words, why]) =>
    el("tr.band", el("th", { colspan: 6, scope: "rowgroup" }, words, el("span", ` ${why}`)));
  const names = ["Layout, and what differs", "Iteration", "Against shown", "", "Memory", ""];
  const heads = names.map((words, i) => el("th", { scope: "col", class: i && "n" }, words));
  const body = groups.map((group) => [band(group.words), group.rows.map((row) => one(row, shown, most))]);
  const untold = notes.map((note) => el("p.note", note));
  put(
    "plans",
    el(
      "div",
      el("h2", `Best layouts${shown ? `: ${faster} surely faster than the one shown` : ""}`),
      el("p.note", `${counts} Layouts read: stages × GPUs per layer × replicas.`),
    ),
    el("table.stack", el("thead", el("tr", heads)), el("tbody", body)),
    untold,
  );
  refresh();
  byId("plans").scrollIntoView({ block: "nearest" });
}

/** @param {BestRow} row @param {number | undefined} shown @param {number} most */
function one({ layout, differs, iteration_time, peak_memory, configuration, mine }, shown, most) {
  const against = shown && !mine && `${signed(100 * (iteration_time / shown - 1), (size) => size.toFixed(1))}%`;
  const length = (96 * iteration_time) / most;
  return el(
    mine ? "tr.mine" : "tr",
    el("td", el("b", layout), el("small", mine ? "the one shown" : differs)),
    el("td.n", el("b", figures(iteration_time)), el("span.u", " s")),
    el("td.n", against),
    el("td.wideonly", picture(96, 14, "", rect(0, 2, 96, 10, "sunk"), rect(0, 2, length, 10, mine ? "f1" : "opt"))),
    el("td.n", figures(peak_memory / 1e9), el("span.u", " GB")),
    el("td.n.act", mine ? el("span.u", "shown") : button("Show this one", () => change({ configuration }))),
  );
}
