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

/**
 * @param {string} value
 * @param {string} [shown]
 */
export const option = (value, shown = value) => element("option", { value }, shown);

/**
 * @param {string} text
 * @param {() => void} pressed
 * @param {Record<string, string>} [attributes]
 */
export function button(text, pressed, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", pressed);
  return made;
}

/**
 * The head and the body of a table; a column of numbers stands at its right.
 *
 * @param {string[]} headings
 * @param {Scalar[][]} cells
 */
export function table(headings, cells) {
  const numeric = headings.map((_, i) => cells.every((row) => row[i] === "" || !Number.isNaN(Number(row[i]))));
  const kind = (/** @type {number} */ i) => ({ class: numeric[i] && "number" });
  const head = element("tr", {}, ...headings.map((text, i) => element("th", { scope: "col", ...kind(i) }, text)));
  const body = cells.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", kind(i), String(cell)))));
  return [element("thead", {}, head), element("tbody", {}, ...body)];
}

/**
 * Hands a file to the reader.
 *
 * @param {string} name
 * @param {string | Blob} content
 * @param {string} [type]
 */
export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
