// A drawing as a file: SVG with the page's rules in it, or PNG of twice its size.
import { button, download } from "./elements.js";
import { marked } from "./svg.js";

/** @param {SVGElement} drawn @param {string} name @param {"svg" | "png"} kind */
export async function save(drawn, name, kind) {
  const [markup, width, height] = marked(drawn);
  if (kind === "svg") return download(`${name}.svg`, markup, "image/svg+xml");
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([markup], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--bg");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && download(`${name}.png`, blob));
}

/** Words that save what is drawn in a place. @param {() => HTMLElement} place @param {() => string} name */
export const exports = (place, name) =>
  /** @type {const} */ (["png", "svg"]).map((kind) =>
    button(kind.toUpperCase(), () => {
      const drawn = place().querySelector("svg");
      if (drawn) void save(drawn, name(), kind);
    }),
  );
