// The GPUs as a picture: one replica with its stages and nodes, then all replicas.
import { picture, rect, text } from "./svg.js";

const [MOST, MANY_STAGES] = [64, 8];

/** @param {Sizes} sizes @param {number} perNode @param {number} width */
export function layout({ p, t, c, d, layers }, perNode, width) {
  const nodes = /** @type {any[]} */ ([]);
  const titled = (/** @type {number} */ y, /** @type {string} */ words, /** @type {number} */ gpus) =>
    nodes.push(text(0, y, words, "k b"), text(width, y, `${gpus.toLocaleString("en")} GPUs`, "end"));
  const stages = p > MANY_STAGES ? [0, 1, 2, null, p - 2, p - 1] : Array.from({ length: p }, (_, i) => i);
  const columns = Math.min(stages.length, width < 400 ? 2 : Math.max(2, Math.min(4, Math.floor(width / 110))));
  const gap = 18;
  const box = (width - gap * (columns - 1)) / columns;
  const across = Math.min(t, 8);
  const step = Math.min(22, (box - 16) / across);
  const high = 30 + Math.min(Math.ceil(t / 8), 4) * 28;
  titled(12, "One replica: the model once", p * t * c);
  stages.forEach((stage, i) => {
    const [x, y] = [(i % columns) * (box + gap), 24 + Math.floor(i / columns) * (high + 12)];
    if (stage === null) return nodes.push(text(x + box / 2, y + high / 2, `⋯ ${p - 5} more`, "mid"));
    const [first, last] = [Math.floor((stage * layers) / p) + 1, Math.floor(((stage + 1) * layers) / p)];
    const words = `Stage ${stage + 1}${box > 130 ? `: layers ${first}–${last}` : ""}`;
    nodes.push(rect(x, y, box, high, t > perNode ? "box bad-line" : "box", 4), text(x + 8, y + 16, words, "k"));
    for (let gpu = 0; gpu < Math.min(t, 32); gpu++) {
      const [u, v] = [x + 8 + (gpu % across) * step, y + 24 + Math.floor(gpu / across) * 28];
      nodes.push(rect(u, v, step - 4, 24, `gpu ${stage % 2 ? "fwd2" : "fwd"}`));
    }
    if (i % columns && stages[i - 1] !== null) nodes.push(text(x - gap / 2, y + high / 2 + 4, "→", "mid k"));
  });
  let y = 24 + Math.ceil(stages.length / columns) * (high + 12);
  const where = t > perNode ? "over the network" : "over NVLink in a node";
  nodes.push(text(0, y + 10, t > 1 ? `${t} GPUs share each layer, ${where}` : "1 GPU has each layer"));
  titled(y + 36, d > 1 ? `${d.toLocaleString("en")} replicas, each on its own data` : "One replica", p * t * c * d);
  y += 46;
  const shown = d > MOST ? MOST - 1 : d;
  const inRow = Math.max(1, Math.floor((width + 6) / 44));
  const inner = Math.min(p, 6);
  for (let i = 0; i < shown; i++) {
    const [x, top] = [(i % inRow) * 44, y + Math.floor(i / inRow) * 26];
    nodes.push(rect(x, top, 38, 20, i ? "box replica" : "box hot replica", 3));
    for (let stage = 0; stage < inner; stage++)
      nodes.push(rect(x + 4 + (stage * 30) / inner, top + 5, 30 / inner - 1.5, 10, stage % 2 ? "fwd2" : "fwd"));
  }
  y += Math.ceil(shown / inRow) * 26;
  if (shown < d) nodes.push(text(0, y + 12, `+ ${(d - shown).toLocaleString("en")} more`));
  const over = t > perNode ? ", which do not fit in a node" : "";
  const label = `${p * t * c * d} GPUs: ${d} replicas of ${p} pipeline stages, each of ${t} GPUs${over}`;
  return picture(width, y + (shown < d ? 18 : 0), label, nodes);
}
