// Elements of a drawing, made of attributes and classes: colours come from the style sheet alone.
import { button, byId, download, svg } from "./elements.js";

/** @param {number} x @param {number} y @param {string} words @param {string} [kind] */
export const text = (x, y, words, kind = "") => svg("text", { x, y, class: kind }, words);

/** @param {string} d @param {string} kind */
export const path = (d, kind) => svg("path", { d, class: kind });

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} kind @param {number} [rx] */
export const rect = (x, y, width, height, kind, rx = 1) =>
  svg("rect", { x, y, width: Math.max(0, width), height, class: kind, rx });

/** @param {number} cx @param {number} cy @param {number} r @param {string} kind */
export const circle = (cx, cy, r, kind) => svg("circle", { cx, cy, r, class: kind });

/** One image to who cannot see it, or nothing. @param {number} width @param {number} height @param {string} label @param {...any} content */
export function picture(width, height, label, ...content) {
  const said = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, ...said }, ...content);
}

/** @type {WeakMap<Element, { draw: (width: number) => any, width: number }>} */
const places = new WeakMap();

/** @param {any} place @param {number} width */
function redraw(place, width) {
  const drawn = /** @type {any} */ (places.get(place));
  drawn.width = width;
  place.replaceChildren(...[drawn.draw(width)].flat());
}
const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const width = Math.floor(contentRect.width);
    if (width && width !== places.get(target)?.width) redraw(target, width);
  }
});

/** Draws once the place has a width, before it is seen, and again whenever it has another; returns the place. @param {HTMLElement} place @param {(width: number) => any} draw */
export function fitted(place, draw) {
  const width = places.get(place)?.width ?? 0;
  places.set(place, { draw, width });
  if (width) redraw(place, width);
  else observer.observe(place);
  return place;
}

/** Round values over a range: 3 to 6 of them. @param {number} low @param {number} high @param {number} [most] */
export function rounded(low, high, most = 5) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = power * ([1, 2, 5, 10].find((digit) => span / (digit * power) <= most) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const count = Math.ceil(high / step - 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A number in three figures, or as many as its whole part has; a true minus. @param {number} value */
export function figures(value) {
  const shown = Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3));
  return String(shown).replace("-", "−");
}

/** With its sign. @param {number} value @param {(size: number) => string} [show] */
export const signed = (value, show = figures) => `${value < 0 ? "−" : value > 0 ? "+" : ""}${show(Math.abs(value))}`;

/** How wide words are, about, in the charts' letters. @param {string} words */
export const wide = (words) => 7 * words.length;

/** @param {string} words */
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** A drawing as the text of a file, with the style sheet's rules and colours in it. @param {any} drawn */
function marked(drawn) {
  const copy = drawn.cloneNode(true);
  const tokens = getComputedStyle(document.documentElement);
  const rules = /** @type {any[]} */ ([...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]));
  const style = rules
    .filter((rule) => rule instanceof CSSStyleRule && rule.selectorText !== ":root")
    .filter(({ selectorText: it }) => drawn.matches(it) || drawn.querySelector(it))
    .map(({ cssText }) =>
      cssText.replace(/var\((--[\w-]+)\)/g, (/** @type {string} */ _, /** @type {string} */ name) =>
        tokens.getPropertyValue(name),
      ),
    );
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const hatch = byId("hatch").parentElement.cloneNode(true);
  copy.prepend(svg("style", `${style.join("\n")}\n.hat{stroke:${tokens.getPropertyValue("--hatch")}}`), hatch);
  return new XMLSerializer().serializeToString(copy);
}

/** Save what is drawn: SVG, or PNG of twice its size. @param {any} drawn @param {string} name @param {string} kind */
async function save(drawn, name, kind) {
  const file = new Blob([marked(drawn)], { type: "image/svg+xml" });
  if (kind === "svg") return download(`${name}.svg`, file);
  const image = new Image();
  image.src = URL.createObjectURL(file);
  await image.decode();
  const [width, height] = [2 * drawn.clientWidth, 2 * drawn.clientHeight];
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const pen = /** @type {any} */ (canvas.getContext("2d"));
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--bg");
  pen.fillRect(0, 0, width, height);
  pen.drawImage(image, 0, 0, width, height);
  canvas.toBlob((blob) => blob && download(`${name}.png`, blob));
}

/** Words that save what is drawn in a place. @param {string} place @param {() => string} name */
export const exports = (place, name) =>
  ["png", "svg"].map((kind) =>
    button(kind.toUpperCase(), () => {
      const drawn = byId(place).querySelector("svg");
      if (drawn) void save(drawn, name(), kind);
    }),
  );
