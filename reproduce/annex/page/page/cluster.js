// The cluster: one that is shipped, with numbers that one may change, or the text of a cluster file.
import { byId, element, inputOf, option, selectOf } from "./elements.js";
import { change, cluster, current, fail, isShipped } from "./page.js";
import { ask } from "./python.js";

/** Another cluster, or this one's own numbers again, or a file's. @param {{ cluster?: string, text?: string }} part */
function use(part) {
  change({ changes: {}, text: "", ...part });
  void showNumbers();
}

export function showName() {
  const changed = isShipped() ? "" : ", with changed numbers";
  byId("cluster-name").textContent = current().text ? "a file of your own" : current().cluster + changed;
}

export async function showNumbers() {
  const { cluster: name, text } = cluster();
  const answer = await ask("cluster", { name, text }).catch((error) => fail(error.message));
  if (!answer) return;
  selectOf("cluster-select").value = name;
  inputOf("cluster-text").value = text;
  byId("cluster-description").textContent = answer.description;
  byId("cluster-numbers").replaceChildren(...answer.numbers.map(row));
}

/** @param {ClusterNumber} entry */
function row(entry) {
  const { words, value, low, high, source, set_with, shown } = entry;
  const [unit, factor] = shown;
  const said = (/** @type {number} */ number) => String(Number((number / factor).toPrecision(12)));
  const now = said(current().changes[entry.name] ?? value);
  const fixed = low === high || Boolean(current().text);
  const input = element("input", {
    inputmode: "decimal",
    "aria-label": unit ? `${words} in ${unit}` : words,
    value: now,
  });
  input.addEventListener("change", () => changed(entry, input.value, said));
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, words),
    element("td", { class: "number" }, fixed ? now : input),
    element("td", {}, unit),
    element("td", {}, low === high ? "fixed" : `${said(low)} to ${said(high)}`),
    element("td", {}, `${source} (set with: ${set_with})`),
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

/** @param {string[]} names */
export function fill(names) {
  selectOf("cluster-select").replaceChildren(...names.map((name) => option(name)));
  selectOf("cluster-select").value = current().cluster;
}

export function listen() {
  selectOf("cluster-select").addEventListener("change", () => use({ cluster: selectOf("cluster-select").value }));
  byId("cluster-reset").addEventListener("click", () => use({}));
  byId("cluster-use").addEventListener("click", () => {
    const text = inputOf("cluster-text").value;
    ask("cluster", { name: current().cluster, text }).then(
      () => use({ text }),
      (error) => fail(error.message),
    );
  });
}
