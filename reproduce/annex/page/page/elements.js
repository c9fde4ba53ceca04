// Elements of the page, found and made.

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/**
 * Makes elements of "tag.class.class#id": then attributes and listeners, if any, and in order what is in them. What is
 * false, null or "" is left out; lists in the content are opened.
 *
 * @param {string} space @returns {(what: string, ...content: Content[]) => any}
 */
const maker =
  (space) =>
  (what, ...content) => {
    const [named, id] = what.split("#");
    const [tag, ...classes] = named.split(".");
    const given = /** @type {Given} */ (content[0]?.constructor === Object ? content.shift() : {});
    const node = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(/** @type {Given} */ ({ id, class: classes.join(" "), ...given })))
      if (typeof value === "function") node.addEventListener(name, value);
      else if (typeof value === "number") node.setAttribute(name, String(Math.round(value * 100) / 100));
      else if (value || (value === "" && name in given)) node.setAttribute(name, value === true ? "" : String(value));
    node.append(.../** @type {any[]} */ (content.flat(9)).filter((it) => it || it === 0));
    return node;
  };
export const el = maker("http://www.w3.org/1999/xhtml");
export const svg = maker("http://www.w3.org/2000/svg");

/** Put something else into an element. @param {string} id @param {...Content} content */
export const fill = (id, ...content) => byId(id).replaceChildren(...content.flat(9).filter(Boolean));

/** Which of several is shown. @param {Element} node @param {boolean} on @param {string} [as] */
export const mark = (node, on, as = "true") =>
  on ? node.setAttribute("aria-current", as) : node.removeAttribute("aria-current");

/** @param {string} value @param {string} [shown] */
export const option = (value, shown = value) => el("option", { value }, shown);

/** Fill a choice with names for people by value. @param {string} id @param {Record<string, string>} names @param {string} now */
export function choices(id, names, now) {
  const options = Object.entries(names).map(([value, shown]) => option(value, shown));
  fill(id, options);
  byId(id).value = now;
}

/** @param {string} text @param {(event: any) => unknown} click @param {string} [what] @param {Given} [attributes] */
export const button = (text, click, what = ".quiet", attributes) =>
  el(`button${what}`, { type: "button", click, ...attributes }, text);

/** A field with its words above it, which says what is wrong with it. @param {Content} words @param {any} input @param {string} [look] @param {...Content} more */
export const field = (words, input, look = "", ...more) =>
  el(`label.field${look}#${input.id}-field`, el("span", [words]), input, el("span.why", { role: "alert" }), ...more);

/** @param {string} href @param {string} words @param {string} [what] */
export const link = (href, words, what = ".quiet") => el(`a${what}`, { href }, words);

/** What scrolls by itself. @param {string} label @param {...Content} content */
export const scrolled = (label, ...content) =>
  el("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, ...content);

/** What opens on demand: its name, its state at the right. @param {string} name @param {string} id @param {...Content} content */
export const more = (name, id, ...content) =>
  el(`details.more#${id}`, el("summary", name, el("span.u")), el("div", ...content));

/** The state of a detail at its right. @param {string} id @param {string} words */
export const tell = (id, words) => (byId(id).querySelector("summary .u").textContent = words);

/** A value with its unit, lighter. @param {string} value @param {string} unit */
export const valued = (value, unit) => [value, el("span.u", `${unit === "%" || unit === "×" ? "" : " "}${unit}`)];

/** Fill a row of facts: what, value, unit, and a note. @param {string} id @param {Row[]} rows */
export function facts(id, rows) {
  const one = (/** @type {Row} */ [name, value, unit, note]) =>
    el("div", el("dt", name), el("dd", valued(value, unit), el("small", note)));
  fill(id, rows.map(one));
}

/** A table of rows, the first its headings; a column of numbers stands at its right. @param {string} label @param {any[][]} rows */
export function table(label, [headings, ...cells]) {
  const isNumber = (/** @type {any} */ cell) =>
    cell === "" || cell === null || !Number.isNaN(Number(String(cell).replace("−", "-")));
  const kinds = headings.map((_, i) => ({ class: cells.every((row) => isNumber(row[i])) && "n" }));
  const head = headings.map((text, i) => el("th", { scope: "col", ...kinds[i] }, text));
  const shown = (/** @type {any} */ cell) => String(cell ?? "").replace(/^-(?=\d)/, "−");
  const line = (/** @type {any[]} */ row) => row.map((cell, i) => el("td", kinds[i], shown(cell)));
  const body = cells.map((row) => el("tr", line(row)));
  return scrolled(label, el("table", el("thead", el("tr", head)), el("tbody", body)));
}

/** Hands a file to the reader. @param {string} name @param {string | Blob} content @param {string} [type] */
export function download(name, content, type) {
  const href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

/** Copy, and say so on the button. @param {HTMLElement} pressed @param {string} text */
export async function copy(pressed, text) {
  await navigator.clipboard?.writeText(text).catch(() => {});
  pressed.textContent = `Copied: ${text}`;
}
