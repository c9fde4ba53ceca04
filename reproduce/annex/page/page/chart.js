// Charts by Observable Plot: ours as lines and filled markers, the paper's hollow and dashed.
import { download } from "./elements.js";

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888"];
const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "cross"];
const LATE_MS = 5000;
const STYLE = { fontSize: "13px", background: "transparent", color: "var(--fg)" };
const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Element & { series: [name: string, color: string][] }} Figure */

const libraries = loaded(); // asked for before the first chart is

/** The libraries that the page names, one after the other: the second needs the first. */
async function loaded() {
  const scripts = [...document.querySelectorAll("link[rel=preload][as=script]")].map((link) => {
    const { href, integrity } = /** @type {HTMLLinkElement} */ (link);
    const script = Object.assign(document.createElement("script"), { async: false, crossOrigin: "anonymous" });
    const done = new Promise((resolve, reject) => {
      const failed = () => reject(new Error(`no charts: ${new URL(href).host} did not give ${href}`));
      script.onload = resolve;
      script.onerror = failed;
      setTimeout(failed, LATE_MS);
    });
    document.head.append(Object.assign(script, { src: href, integrity }));
    return done;
  });
  await Promise.all(scripts);
}
libraries.catch(() => {}); // said where a chart is missing

/**
 * @typedef {{ series: string, x: Scalar, y: number | null, paper: number | null, status: string,
 *   low: number, high: number }} Mark
 */

/** @param {ArtifactAnswer} answer @param {QuantityShown} quantity @returns {Mark[]} */
function marks({ x, points, fidelity }, quantity) {
  const { name, factor } = quantity;
  const shown = (/** @type {number | undefined} */ value) => (typeof value === "number" ? value / factor : null);
  return points.map((point) => ({
    series: point.series || fidelity,
    x: x?.scale === "category" ? point.label : point.parameters[x?.parameter ?? ""],
    y: point.status === "ok" ? shown(point.metrics[name]) : null,
    paper: shown(point.paper[name]),
    status: point.status,
    low: point.intervals[name]?.[0] / factor,
    high: point.intervals[name]?.[1] / factor,
  }));
}

/**
 * The chart of an artifact, or nothing for one that has no x axis (its table is shown).
 *
 * @param {ArtifactAnswer} answer
 * @param {number} width in pixels
 * @returns {Promise<Figure | null>} rejected if the libraries cannot be had
 */
export async function draw(answer, width) {
  const { x, quantities } = answer;
  const [quantity] = quantities;
  const data = marks(answer, quantity);
  if (!x || !data.some((point) => point.y !== null)) return null;
  await libraries;
  const { plot, ruleX, ruleY, areaY, lineY, dot, text, tip, pointer } = Plot;
  const categories = x.scale === "category";
  const ours = data.filter((point) => point.y !== null);
  const papers = data.filter((point) => point.paper !== null);
  const domain = [...new Set(data.map((point) => point.series))];
  const label = quantity.axis || quantity.heading;
  const both = { x: "x", stroke: "series", symbol: "series" };
  const title = (/** @type {Mark} */ mark) => described(mark, x.label, quantity);
  const sure = ours.filter((point) => point.low >= 0);
  const range = domain.map((name, i) => answer.looks[name]?.colour ?? PALETTE[i % PALETTE.length]);
  // Categories stand beside each other: no line leads from one to the next.
  const line = (/** @type {boolean} */ dotted) =>
    lineY(
      ours.filter(({ series }) => !categories && Boolean(answer.looks[series]?.dotted) === dotted),
      {
        x: "x",
        y: "y",
        stroke: "series",
        strokeWidth: 2,
        ...(dotted && { strokeDasharray: "1 5", strokeLinecap: "round" }),
      },
    );
  const figure = plot({
    ...size(width),
    ...(categories && { marginBottom: 110 }),
    ariaLabel: `${answer.label}: ${label} over ${x.label}`,
    x: axis(x, [...new Set(data.map((point) => point.x))]),
    y: { label, zero: true, grid: true, nice: true },
    color: { domain, range },
    symbol: { domain, range: SYMBOLS, legend: domain.length > 1 },
    marks: [
      ruleY([0]),
      ...(categories
        ? [ruleX(sure, { x: "x", y1: "low", y2: "high", stroke: "series", strokeWidth: 8, strokeOpacity: 0.2 })]
        : [areaY(sure, { x: "x", y1: "low", y2: "high", z: "series", fill: "series", fillOpacity: 0.15 })]),
      lineY(categories ? [] : papers, {
        x: "x",
        y: "paper",
        stroke: "series",
        strokeDasharray: "4 4",
        strokeOpacity: 0.7,
      }),
      dot(papers, { ...both, y: "paper", r: 7, fill: "none", strokeWidth: 1.5 }),
      line(false),
      line(true),
      dot(ours, { ...both, y: "y", r: 4, fill: "series" }),
      text(
        data.filter((point) => !categories && point.status === "oom"),
        { ...{ x: "x", text: () => "out of memory", frameAnchor: "bottom", dy: -6, rotate: -90 }, textAnchor: "start" },
      ),
      tip(ours, pointer({ x: "x", y: "y", fill: "var(--bg)", title })),
    ],
  });
  figure.series = domain.map((name, i) => [name, range[i]]);
  return labelled(figure);
}

/**
 * The curve of a metric over the values of one field; hollow where it does not fit, and a line at the present value.
 *
 * @param {SweepAnswer} answer
 * @param {MetricShown} metric
 * @param {Scalar | null | undefined} now
 * @param {number} width in pixels
 * @returns {Promise<Element>} rejected if the libraries cannot be had
 */
export async function curve({ label, points }, { name, heading, factor, digits }, now, width) {
  await libraries;
  const { plot, ruleX, ruleY, lineY, dot, tip, pointerX } = Plot;
  const shown = (/** @type {Scalar} */ value) => (value === "" ? "default" : String(value));
  const data = points.map((point) => ({ x: shown(point.value), y: point[name] / factor, status: point.status }));
  const title = (/** @type {{ x: string, y: number, status: string }} */ { x, y, status }) =>
    `${label} ${x}\n${heading} ${y.toFixed(digits)}${status === "ok" ? "" : "\nout of memory"}`;
  const place = { x: "x", y: "y" };
  const fill = (/** @type {{ status: string }} */ { status }) => (status === "ok" ? PALETTE[0] : "var(--bg)");
  const figure = plot({
    ...{ ...size(width), height: 260 },
    ariaLabel: `${heading} over ${label}`,
    x: { type: "point", label, domain: data.map(({ x }) => x) },
    y: { label: heading, zero: true, grid: true, nice: true },
    marks: [
      ruleY([0]),
      ...(now == null ? [] : [ruleX([shown(now)], { stroke: "var(--accent)", strokeWidth: 2, strokeOpacity: 0.5 })]),
      lineY(data, { ...place, stroke: PALETTE[0], strokeWidth: 2 }),
      dot(data, { ...place, r: 5, stroke: PALETTE[0], fill }),
      tip(data, pointerX({ ...place, fill: "var(--bg)", title })),
    ],
  });
  return labelled(figure);
}

/** @param {number} width */
const size = (width) => ({ width: Math.min(width, 760), height: 380, marginLeft: 56, marginBottom: 44, style: STYLE });

/** @param {{ label: string, scale: string }} x @param {Scalar[]} values */
function axis({ label, scale }, values) {
  if (scale === "category") return { type: "point", label: null, domain: values, tickRotate: -45 };
  return { type: scale === "log2" ? "log" : "linear", base: 2, label, ticks: values, tickFormat: String, inset: 12 };
}

/** What the tip of a mark says. @param {Mark} mark @param {string} label @param {QuantityShown} quantity */
function described({ series, x, y, paper }, label, { digits, shown }) {
  if (y === null) return series;
  const beside = paper === null ? "" : `\npaper ${paper.toFixed(digits)}, ratio ${(y / paper).toFixed(3)}`;
  return `${series}, ${label} ${x}\nours ${y.toFixed(digits)} ${shown}${beside}`;
}

/** The drawing itself, without the legend that may stand beside it. @param {Element} figure @returns {SVGSVGElement} */
const drawing = (figure) =>
  /** @type {any} */ (figure.matches("svg") ? figure : [...figure.querySelectorAll("svg")].at(-1));

/**
 * The drawing as one image with a label, as screen readers take it: Plot labels its groups, which have no role.
 *
 * @template {Element} Drawn
 * @param {Drawn} figure
 */
function labelled(figure) {
  figure.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label"));
  drawing(figure).setAttribute("role", "img");
  return figure;
}

/**
 * A chart as a file; its legend, which is beside it in the page, goes below it.
 *
 * @param {Figure} figure
 * @param {string} name
 * @param {"svg" | "png"} kind
 */
export async function save(figure, name, kind) {
  const [markup, width, height] = marked(figure);
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

/**
 * A chart as the text of an SVG file, with its width and height.
 *
 * @param {Figure} figure
 * @returns {[string, number, number]}
 */
function marked(figure) {
  const svg = drawing(figure);
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  const box = svg.viewBox.baseVal;
  const height = box.height + 22 * figure.series.length;
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("height", String(height));
  copy.setAttribute("viewBox", `0 0 ${box.width} ${height}`);
  figure.series.forEach(([series, color], i) => {
    const line = document.createElementNS(SVG, "text");
    const place = { x: 60, y: box.height + 16 + 22 * i, fill: color };
    for (const [key, value] of Object.entries(place)) line.setAttribute(key, String(value));
    line.textContent = `\u25cf ${series}`;
    copy.append(line);
  });
  let markup = new XMLSerializer().serializeToString(copy);
  const style = getComputedStyle(document.documentElement);
  for (const name of ["--fg", "--bg"]) markup = markup.replaceAll(`var(${name})`, style.getPropertyValue(name));
  return [markup, box.width, height];
}
