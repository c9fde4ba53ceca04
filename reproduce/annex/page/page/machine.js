// The machine: one that is shipped, with numbers that one may change, or the text of a cluster file. Its details stand
// in the view that is shown.
import { button, byId, choices, el, field, fill as put, more, scrolled, tell } from "./elements.js";
import { change, current, fail, isShipped, machine, offered } from "./page.js";
import { ask } from "./python.js";

let shown = ""; // what the numbers are of

/** Another machine, or this one's own numbers again, or a file's. @param {{ cluster?: string, text?: string }} part */
const use = (part) => change({ changes: {}, text: "", ...part });

/** A choice of the machine for a view: that of figures offers their paper's own. @param {string} view */
export const picker = (view) =>
  field("Machine", el(`select#machine-${view}`, { change: ({ target }) => use({ cluster: target.value }) }), ".full");

export function make() {
  const text = el("textarea#cluster-text", { rows: 4, spellcheck: "false", placeholder: 'base = "h100"' });
  const numbers = scrolled("Numbers of the machine");
  numbers.id = "cluster-numbers";
  const details = more(
    "The machine in detail",
    "cluster",
    el("p.note#cluster-description"),
    numbers,
    field("Or paste a cluster file (TOML)", text),
    el(
      "p.row",
      button("Use this file", read, ".btn#cluster-use"),
      button("As shipped again", () => use({}), ".quiet#cluster-reset"),
    ),
  );
  details.addEventListener("toggle", () => details.open && void showNumbers());
  byId("whatif-details").append(details);
}

function read() {
  const text = byId("cluster-text").value;
  ask("cluster", { name: current().cluster, text }).then(
    () => use({ text }),
    (error) => fail(error.message),
  );
}

export function refresh() {
  const { view, text, changes, cluster: name } = current();
  byId("machine-figure").value = name;
  byId("machine-whatif").value = machine();
  const place = byId(`${view}-details`);
  if (place !== byId("cluster").parentElement) place?.append(byId("cluster"));
  const count = Object.keys(changes).length;
  tell("cluster", text ? "a file of your own" : count ? `${count} changed` : "as shipped");
  if (byId("cluster").open) void showNumbers();
}

async function showNumbers() {
  const { view, artifact, cluster: name, text, changes } = current();
  const asked = { name, text, id: view === "figure" ? artifact : null };
  if (shown === JSON.stringify([asked, changes])) return;
  shown = JSON.stringify([asked, changes]);
  const answer = await ask("cluster", asked).catch((error) => fail(error.message));
  if (!answer) return;
  byId("cluster-text").value = text;
  byId("cluster-description").textContent = answer.description;
  const head = ["Number", "Value", "Range"].map((word) => el("th", { scope: "col" }, word));
  const rows = answer.numbers.map((/** @type {ClusterNumber} */ each) => row(answer.name, each));
  put("cluster-numbers", el("table", el("thead", el("tr", head)), el("tbody", rows)));
}

/** A machine's number, which one may change in its range, in the unit that people read. @param {string} of @param {ClusterNumber} entry */
function row(of, { name, words, value: usual, low, high, source, set_with, shown: [unit, factor] }) {
  const { changes, text } = current();
  const said = (/** @type {number} */ number) => String(Number((number / factor).toPrecision(12)));
  const now = said(changes[name] ?? usual);
  const needs = `needs ${said(low)} to ${said(high)} ${unit}`.trim();
  const changed = (/** @type {any} */ { target: { value: given } }) => {
    if (given.trim() === "" || Number.isNaN(Number(given))) return fail(`${words}: ${given} is no number; ${needs}`);
    const value = given === said(usual) ? usual : Number(given) * factor;
    if (value < low || value > high) return fail(`${words}: ${given} lies outside its range; ${needs}`);
    const { [name]: _, ...others } = current().changes;
    change({ cluster: of, changes: value === usual ? others : { ...others, [name]: value } });
  };
  const label = unit ? `${words} in ${unit}` : words;
  const input = el("input", { inputmode: "decimal", "aria-label": label, value: now, size: 8, change: changed });
  return el(
    "tr",
    el("th", { scope: "row" }, el("b", words), el("small", `${source} (set with: ${set_with})`)),
    el("td.n", low === high || text ? now : el("span.field", input)),
    el("td", low === high ? ["fixed", unit].filter(Boolean).join(", ") : `${said(low)} to ${said(high)} ${unit}`),
  );
}

/** What people call the machine, however its numbers were changed. */
export const called = () =>
  current().text
    ? "a machine of your own"
    : `${offered()?.clusters[machine()] ?? machine()}${isShipped() ? "" : ", changed"}`;

export function fill() {
  const { clusters } = /** @type {Offer} */ (offered());
  choices("machine-figure", { "": "the paper’s own", ...clusters }, current().cluster);
  choices("machine-whatif", clusters, machine());
}
