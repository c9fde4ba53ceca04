// The GPUs as a picture: one replica with its stages and nodes, then all replicas.
import { picture, rect, svg, text } from "./svg.js";

const [MOST, MANY_STAGES] = [64, 8];

/** @typedef {{ p: number, t: number, c: number, d: number }} Sizes */

/** @param {Sizes} sizes @param {number} layers @param {number} perNode @param {number} width */
export function layout({ p, t, c, d }, layers, perNode, width) {
  const stages = p > MANY_STAGES ? [0, 1, 2, null, p - 2, p - 1] : Array.from({ length: p }, (_, i) => i);
  const columns = Math.min(stages.length, width < 400 ? 2 : Math.max(2, Math.min(4, Math.floor(width / 110))));
  const gap = 18;
  const box = (width - gap * (columns - 1)) / columns;
  const [across, tall] = [Math.min(t, 8), Math.ceil(t / 8)];
  const step = Math.min(22, (box - 16) / across);
  const high = 30 + Math.min(tall, 4) * 28;
  const nodes = [];
  const count = p * t * c;
  nodes.push(text(0, 12, "One replica: the model once", "k b"), text(width, 12, `${count} GPUs`, "end"));
  stages.forEach((stage, i) => {
    const [x, y] = [(i % columns) * (box + gap), 24 + Math.floor(i / columns) * (high + 12)];
    if (stage === null) return nodes.push(text(x + box / 2, y + high / 2, `⋯ ${p - 5} more`, "mid"));
    nodes.push(svg("rect", { x, y, width: box, height: high, rx: 4, class: t > perNode ? "box bad-line" : "box" }));
    const [first, last] = [Math.floor((stage * layers) / p) + 1, Math.floor(((stage + 1) * layers) / p)];
    const words = box > 130 ? `Stage ${stage + 1}: layers ${first}–${last}` : `Stage ${stage + 1}`;
    nodes.push(text(x + 8, y + 16, words, "k"));
    for (let gpu = 0; gpu < Math.min(t, 32); gpu++)
      nodes.push(
        rect(
          x + 8 + (gpu % across) * step,
          y + 24 + Math.floor(gpu / across) * 28,
          step - 4,
          24,
          `gpu ${stage % 2 ? "fwd2" : "fwd"}`,
        ),
      );
    if (i % columns && stages[i - 1] !== null) nodes.push(text(x - gap / 2, y + high / 2 + 4, "→", "mid k"));
  });
  let y = 24 + Math.ceil(stages.length / columns) * (high + 12);
  const link =
    t > perNode
      ? `${t} GPUs share each layer, over the network`
      : `${t} GPU${t > 1 ? "s share" : " has"} each layer${t > 1 ? ", over NVLink in a node" : ""}`;
  nodes.push(text(0, y + 10, link));
  y += 36;
  nodes.push(
    text(0, y, d > 1 ? `${d.toLocaleString("en")} replicas, each on its own data` : "One replica", "k b"),
    text(width, y, `${(count * d).toLocaleString("en")} GPUs`, "end"),
  );
  y += 10;
  const shown = d > MOST ? MOST - 1 : d;
  const each = 38;
  const inRow = Math.max(1, Math.floor((width + 6) / (each + 6)));
  for (let i = 0; i < shown; i++) {
    const [x, top] = [(i % inRow) * (each + 6), y + Math.floor(i / inRow) * 26];
    nodes.push(
      svg("rect", { x, y: top, width: each, height: 20, rx: 3, class: i ? "box replica" : "box hot replica" }),
    );
    const inner = Math.min(p, 6);
    for (let stage = 0; stage < inner; stage++)
      nodes.push(
        rect(x + 4 + (stage * (each - 8)) / inner, top + 5, (each - 8) / inner - 1.5, 10, stage % 2 ? "fwd2" : "fwd"),
      );
  }
  y += Math.ceil(shown / inRow) * 26;
  if (shown < d) nodes.push(text(0, y + 12, `+ ${(d - shown).toLocaleString("en")} more`));
  const label = `${count * d} GPUs: ${d} replicas of ${p} pipeline stages, each of ${t} GPUs${t > perNode ? ", which do not fit in a node" : ""}`;
  return [picture(width, y + (shown < d ? 18 : 0), label, ...nodes)];
}
