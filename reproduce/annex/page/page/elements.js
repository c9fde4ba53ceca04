// Elements of the page, found and made.

/** @param {string} id */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no ${id}`);
  return node;
}

/** @param {string} id */
export const inputOf = (id) => /** @type {HTMLInputElement} */ (byId(id));

/** @param {string} id */
export const selectOf = (id) => /** @type {HTMLSelectElement} */ (byId(id));

/**
 * An element with attributes and, in order, what is in it.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean>} [attributes] those that are false are left out
 * @param {...(string | Node)} content
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...content) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false) node.setAttribute(name, value === true ? "" : String(value));
  node.append(...content);
  return node;
}

/** @param {string} value @param {string} [shown] */
export const option = (value, shown = value) => element("option", { value }, shown);

/** Fill a choice with names for people by value. @param {string} id @param {Record<string, string>} names @param {string} now */
export function choices(id, names, now) {
  selectOf(id).replaceChildren(...Object.entries(names).map(([value, shown]) => option(value, shown)));
  selectOf(id).value = now;
}

/** @param {string} text @param {() => unknown} pressed @param {Record<string, string | boolean>} [attributes] */
export function button(text, pressed, attributes = {}) {
  const made = element("button", { type: "button", class: "quiet", ...attributes }, text);
  made.addEventListener("click", pressed);
  return made;
}

/** A choice with its words above it. @param {string} words @param {string} id @param {string} [kind] */
export const labelled = (words, id, kind = "field") =>
  element("label", { class: kind }, element("span", {}, words), element("select", { id }));

/** What opens on demand: its name, its state at the right. @param {string} name @param {string} id @param {...Node} content */
export const more = (name, id, ...content) =>
  element(
    "details",
    { class: "more", id },
    element("summary", {}, name, element("span", { class: "u" })),
    element("div", {}, ...content),
  );

/** The state of a detail at its right. @param {string} id @param {string} words */
export function tell(id, words) {
  const node = byId(id).querySelector("summary .u");
  if (node) node.textContent = words;
}

/** A value with its unit, lighter. @param {string} value @param {string} unit */
export const valued = (value, unit) => [
  value,
  element("span", { class: "u" }, `${unit === "%" || unit === "×" ? "" : " "}${unit}`),
];

/** Facts in a row: what, value, unit, and a note. @param {[string, string, string, string][]} rows */
export const facts = (rows) =>
  element(
    "dl",
    { class: "facts" },
    ...rows.map(([name, value, unit, note]) =>
      element(
        "div",
        {},
        element("dt", {}, name),
        element("dd", {}, ...valued(value, unit), element("small", {}, note)),
      ),
    ),
  );

/**
 * A table; a column of numbers stands at its right.
 *
 * @param {string} label
 * @param {string[]} headings
 * @param {(Scalar | null)[][]} cells
 */
export function table(label, headings, cells) {
  const numeric = headings.map((_, i) =>
    cells.every((row) => row[i] === "" || row[i] === null || !Number.isNaN(Number(String(row[i]).replace("−", "-")))),
  );
  const kind = (/** @type {number} */ i) => ({ class: numeric[i] && "n" });
  const head = element("tr", {}, ...headings.map((text, i) => element("th", { scope: "col", ...kind(i) }, text)));
  const body = cells.map((row) =>
    element("tr", {}, ...row.map((cell, i) => element("td", kind(i), String(cell ?? "")))),
  );
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, made);
}

/** Hands a file to the reader. @param {string} name @param {string | Blob} content @param {string} [type] */
export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Copy, and say so on the button. @param {HTMLElement} pressed @param {string} text */
export async function copy(pressed, text) {
  await navigator.clipboard?.writeText(text).catch(() => {});
  pressed.textContent = `Copied: ${text}`;
}
