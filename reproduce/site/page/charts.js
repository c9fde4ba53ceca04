// Charts by Observable Plot: ours as lines and filled markers, the paper's hollow and dashed.
const { plot, lineY, areaY, dot, ruleY, tip, pointer, text } = globalThis.Plot;
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888"];
const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "cross"];

// The chart of an artifact, or nothing for one that has no x axis (its table is shown).
export function draw(answer, width) {
  const { x, quantities, points } = answer;
  if (!x) return null;
  const quantity = quantities[0], names = [...new Set(points.map((point) => point.series))];
  const categories = x.scale === "category";
  const data = points.map((point) => ({
    series: point.series || answer.fidelity,
    x: categories ? point.label : point.parameters[x.parameter],
    y: point.status === "ok" && typeof point.metrics[quantity.name] === "number" ? point.metrics[quantity.name] / quantity.factor : null,
    paper: typeof point.paper[quantity.name] === "number" ? point.paper[quantity.name] / quantity.factor : null,
    status: point.status,
    low: point.intervals[quantity.name]?.[0] / quantity.factor,
    high: point.intervals[quantity.name]?.[1] / quantity.factor,
  }));
  if (!data.some((point) => point.y !== null)) return null;
  const ours = data.filter((point) => point.y !== null), papers = data.filter((point) => point.paper !== null), out = data.filter((point) => point.status === "oom");
  const domain = names.map((name) => name || answer.fidelity), label = quantity.axis || quantity.heading;
  const both = { x: "x", stroke: "series", symbol: "series" };
  const figure = plot({
    width: Math.min(width, 760), height: 380, marginLeft: 56, marginBottom: 44, style: { fontSize: "13px", background: "transparent", color: "var(--fg)" },
    ariaLabel: `${answer.label}: ${label} over ${x.label}`,
    x: categories ? { type: "point", label: x.label, domain: [...new Set(data.map((point) => point.x))] } : { type: x.scale === "log2" ? "log" : "linear", base: 2, label: x.label, ticks: [...new Set(data.map((point) => point.x))], tickFormat: String, inset: 12 },
    y: { label, zero: true, grid: true, nice: true },
    color: { domain, range: PALETTE, legend: domain.length > 1 },
    symbol: { domain, range: SYMBOLS },
    marks: [
      ruleY([0]),
      areaY(ours.filter((point) => point.low >= 0), { x: "x", y1: "low", y2: "high", z: "series", fill: "series", fillOpacity: 0.15 }),
      lineY(papers, { x: "x", y: "paper", stroke: "series", strokeDasharray: "4 4", strokeOpacity: 0.7 }),
      dot(papers, { ...both, y: "paper", r: 7, fill: "none", strokeWidth: 1.5 }),
      lineY(ours, { x: "x", y: "y", stroke: "series", strokeWidth: 2 }),
      dot(ours, { ...both, y: "y", r: 4, fill: "series" }),
      text(out, { x: "x", text: () => "out of memory", frameAnchor: "bottom", dy: -6, rotate: -90, textAnchor: "start", fill: "series" }),
      tip(ours, pointer({ x: "x", y: "y", fill: "var(--bg)", title: (point) => `${point.series}, ${x.label} ${point.x}\nours ${point.y.toFixed(quantity.digits)} ${quantity.shown}${point.paper === null ? "" : `\npaper ${point.paper.toFixed(quantity.digits)}, ratio ${(point.y / point.paper).toFixed(3)}`}` })),
    ],
  });
  figure.series = domain.map((name, i) => [name, PALETTE[i % PALETTE.length]]);
  return labelled(figure);
}

// The drawing as one image with a label, as screen readers take it: Plot labels its groups, which have no role.
function labelled(figure) {
  figure.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label"));
  (figure.matches("svg") ? figure : [...figure.querySelectorAll("svg")].at(-1)).setAttribute("role", "img");
  return figure;
}

export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const picture = {
  // A chart as a file; its legend, which is beside it in the page, goes below it.
  async save(figure, name, kind) {
    const svg = figure.matches("svg") ? figure : [...figure.querySelectorAll("svg")].at(-1);
    const copy = svg.cloneNode(true), style = getComputedStyle(document.documentElement), box = svg.viewBox.baseVal;
    const height = box.height + 22 * figure.series.length;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("height", height);
    copy.setAttribute("viewBox", `0 0 ${box.width} ${height}`);
    figure.series.forEach(([series, color], i) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "text");
      Object.entries({ x: 60, y: box.height + 16 + 22 * i, fill: color }).forEach(([key, value]) => line.setAttribute(key, value));
      line.textContent = `\u25cf ${series}`;
      copy.append(line);
    });
    const markup = new XMLSerializer().serializeToString(copy).replaceAll("var(--fg)", style.getPropertyValue("--fg")).replaceAll("var(--bg)", style.getPropertyValue("--bg"));
    if (kind === "svg") return download(`${name}.svg`, markup, "image/svg+xml");
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([markup], { type: "image/svg+xml" }));
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * box.width;
    canvas.height = 2 * height;
    const pen = canvas.getContext("2d");
    pen.fillStyle = style.getPropertyValue("--bg");
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(`${name}.png`, blob));
  },
};
