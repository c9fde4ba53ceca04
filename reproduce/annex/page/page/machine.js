// The machine: one that is shipped, with numbers that one may change, or the text of a cluster file. Its details stand
// in the view that is shown.
import { button, byId, element, inputOf, labelled, more, selectOf, tell, choices } from "./elements.js";
import { change, cluster, current, fail, isShipped, offered } from "./page.js";
import { ask } from "./python.js";

let shown = ""; // what the numbers are of

/** Another machine, or this one's own numbers again, or a file's. @param {{ cluster?: string, text?: string }} part */
const use = (part) => change({ changes: {}, text: "", ...part });

/** A choice of the machine for a view. @param {string} view */
export function picker(view) {
  const made = labelled("Machine", `machine-${view}`, "field full");
  made.querySelector("select")?.addEventListener("change", () => use({ cluster: selectOf(`machine-${view}`).value }));
  return made;
}

export function make() {
  const text = element("textarea", { id: "cluster-text", rows: 4, spellcheck: "false", placeholder: 'base = "h100"' });
  const details = more(
    "The machine in detail",
    "cluster",
    element("p", { class: "note", id: "cluster-description" }),
    element("div", {
      class: "scroll",
      tabindex: 0,
      role: "region",
      "aria-label": "Numbers of the machine",
      id: "cluster-numbers",
    }),
    element("label", { class: "field" }, element("span", {}, "Or paste a cluster file (TOML)"), text),
    element(
      "p",
      { class: "row" },
      button("Use this file", read, { class: "btn", id: "cluster-use" }),
      button("As shipped again", () => use({}), { id: "cluster-reset" }),
    ),
  );
  details.addEventListener("toggle", () => details.open && void showNumbers());
  byId("whatif-details").append(details);
}

function read() {
  const text = inputOf("cluster-text").value;
  ask("cluster", { name: current().cluster, text }).then(
    () => use({ text }),
    (error) => fail(error.message),
  );
}

export function refresh() {
  const { view, text, changes, cluster: name } = current();
  document.getElementById(`${view}-details`)?.append(byId("cluster"));
  const count = Object.keys(changes).length;
  tell("cluster", text ? "a file of your own" : count ? `${count} changed` : "as shipped");
  for (const select of document.querySelectorAll("[id^=machine-]"))
    /** @type {HTMLSelectElement} */ (select).value = name;
  if (/** @type {HTMLDetailsElement} */ (byId("cluster")).open) void showNumbers();
}

async function showNumbers() {
  const { cluster: name, text } = cluster();
  if (shown === JSON.stringify([name, text, current().changes])) return;
  shown = JSON.stringify([name, text, current().changes]);
  const answer = await ask("cluster", { name, text }).catch((error) => fail(error.message));
  if (!answer) return;
  inputOf("cluster-text").value = text;
  byId("cluster-description").textContent = answer.description;
  const head = ["Number", "Value", "Unit", "Range", "Source"].map((word) => element("th", { scope: "col" }, word));
  const body = element("tbody", {}, ...answer.numbers.map(row));
  byId("cluster-numbers").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head)), body));
}

/** @param {ClusterNumber} entry */
function row(entry) {
  const { words, value, low, high, source, set_with, shown } = entry;
  const [unit, factor] = shown;
  const said = (/** @type {number} */ number) => String(Number((number / factor).toPrecision(12)));
  const now = said(current().changes[entry.name] ?? value);
  const fixed = low === high || Boolean(current().text);
  const label = unit ? `${words} in ${unit}` : words;
  const input = element("input", { inputmode: "decimal", "aria-label": label, value: now, size: 8 });
  input.addEventListener("change", () => changed(entry, input.value, said));
  const value_ = fixed ? now : element("span", { class: "field" }, input);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, words),
    element("td", { class: "n" }, value_),
    element("td", {}, unit),
    element("td", {}, low === high ? "fixed" : `${said(low)} to ${said(high)}`),
    element("td", {}, element("small", {}, `${source} (set with: ${set_with})`)),
  );
}

/** @param {ClusterNumber} entry @param {string} text in the shown unit @param {(value: number) => string} said */
function changed({ name, words, value: usual, low, high, shown }, text, said) {
  const [unit, factor] = shown;
  const needs = `needs ${said(low)} to ${said(high)} ${unit}`.trim();
  if (text.trim() === "" || Number.isNaN(Number(text))) return fail(`${words}: ${text} is no number; ${needs}`);
  const value = text === said(usual) ? usual : Number(text) * factor;
  if (value < low || value > high) return fail(`${words}: ${text} lies outside its range; ${needs}`);
  const { [name]: _, ...others } = current().changes;
  change({ changes: value === usual ? others : { ...others, [name]: value } });
}

/** What people call the machine, however its numbers were changed. */
export const called = () =>
  current().text
    ? "a machine of your own"
    : `${offered()?.clusters[current().cluster] ?? current().cluster}${isShipped() ? "" : ", changed"}`;

export function fill() {
  const names = offered()?.clusters ?? {};
  for (const select of document.querySelectorAll("select[id^=machine-]")) choices(select.id, names, current().cluster);
}
