// Elements of a drawing, made of attributes and classes: colours come from the style sheet alone.

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(string | Node)} content
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...content) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes))
    node.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  node.append(...content);
  return node;
}

/** @param {number} x @param {number} y @param {string} words @param {string} [kind] */
export const text = (x, y, words, kind = "") => svg("text", { x, y, class: kind }, words);

/** @param {string} d @param {string} kind */
export const path = (d, kind) => svg("path", { d, class: kind });

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} kind */
export const rect = (x, y, width, height, kind) =>
  svg("rect", { x, y, width: Math.max(0, width), height, class: kind, rx: 1 });

/**
 * A drawing that is one image to who cannot see it.
 *
 * @param {number} width
 * @param {number} height
 * @param {string} label
 * @param {...(Node | string)} content
 */
export const picture = (width, height, label, ...content) =>
  svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...content);

/**
 * Draws now, and again whenever the place of the drawing gets another width.
 *
 * @param {HTMLElement} place
 * @param {(width: number) => Node[]} draw
 */
export function fitted(place, draw) {
  observers.get(place)?.disconnect();
  let drawn = 0;
  const again = () => {
    const width = place.clientWidth;
    if (!width || width === drawn) return;
    place.replaceChildren(...draw((drawn = width)));
  };
  again();
  const observer = new ResizeObserver(again);
  observer.observe(place);
  observers.set(place, observer);
}

/** @type {WeakMap<HTMLElement, ResizeObserver>} */
const observers = new WeakMap();

/** Round values over a range: 3 to 6 of them. @param {number} low @param {number} high @param {number} [most] */
export function rounded(low, high, most = 5) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = power * ([1, 2, 5, 10].find((digit) => span / (digit * power) <= most) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A number in three figures, or as many as its whole part has; a true minus. @param {number} value */
export function figures(value) {
  const size = Math.abs(value);
  const shown = size >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  return shown.replace("-", "−");
}

/** How wide words are, about, in the charts' letters. @param {string} words */
export const wide = (words) => 7 * words.length;

/**
 * A drawing as the text of a file, with the style sheet's rules and colours in it.
 *
 * @param {SVGElement} drawn
 * @returns {[markup: string, width: number, height: number]}
 */
export function marked(drawn) {
  const copy = /** @type {SVGElement} */ (drawn.cloneNode(true));
  const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
  const rules = [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSStyleRule);
  const tokens = getComputedStyle(document.documentElement);
  const used = rules.filter(({ selectorText: it }) => it !== ":root" && (drawn.matches(it) || drawn.querySelector(it)));
  const style = used.map((rule) => rule.cssText).join("\n");
  const plain = style.replace(/var\((--[\w-]+)\)/g, (_, name) => tokens.getPropertyValue(name));
  const hatch = document.getElementById("hatch")?.parentElement?.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(
    svg("style", {}, `${plain}\n.hat{stroke:${tokens.getPropertyValue("--hatch")}}`),
    ...(hatch ? [hatch] : []),
  );
  return [new XMLSerializer().serializeToString(copy), width, height];
}
