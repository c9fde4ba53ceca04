// A claim as a card: its verdict, what it says in a few words, what it needs and what came out, why, and the sentence.
import { element } from "./elements.js";
import { path, picture, rect, svg, text, wide } from "./svg.js";

/** @typedef {ArtifactAnswer["claims"][0]} Claim */

/** @type {Record<string, string>} */
const KINDS = {
  holds: "holds",
  inconclusive: "open",
  "paper inconsistent": "self",
  contradicted: "contra",
  "not testable here": "untested",
};
const WIDTH = 300;

/** @param {string} id */
const plain = (id) => (id[0].toUpperCase() + id.slice(1)).replaceAll("_", " ");

const TWIN = "_in_the_paper"; // ends the id of the same claim on the paper's own points

/** One sentence, judged once or in parts; the paper's own points stand with what they repeat. @param {Claim[]} claims @param {string} chosen */
export function card(claims, chosen) {
  const twin = (/** @type {Claim} */ { id }) => claims.find((other) => other.id === id + TWIN);
  const own = claims.filter(({ id }) => !claims.some((other) => other.id + TWIN === id));
  const [first] = own;
  const body =
    own.length > 1
      ? [element("div", { class: "parts" }, ...own.map((claim) => part(claim, twin(claim))))]
      : judged(first, twin(first));
  const known = claims.some(({ id }) => id === chosen);
  return element(
    "article",
    { class: own.length > 1 ? "claim full" : "claim", "data-chosen": known, "data-verdict": first.verdict },
    head(first, own.length > 1),
    element("h3", {}, plain(first.id)),
    ...body,
    element("blockquote", {}, first.sentence),
  );
}

/** @param {Claim} claim */
const sign = ({ verdict }) => element("i", { class: `sign v-${KINDS[verdict]}` });

/** @param {Claim} claim @param {boolean} parts */
const head = (claim, parts) =>
  element(
    "p",
    { class: "verdict" },
    ...(parts ? [element("b", {}, "Judged in parts")] : [sign(claim), element("b", {}, plain(claim.shown))]),
    element("span", { class: "u" }, claim.place),
  );

/** @param {Claim} claim @param {Claim} [twin] */
const judged = (claim, twin) => [
  ...(claim.bar ? [bar(claim.bar)] : []),
  element("p", {}, plain(claim.explanation || " ")),
  ...(twin ? [element("small", { class: "twin" }, sign(twin), ` ${plain(twin.explanation)}`)] : []),
];

/** @param {Claim} claim @param {Claim} [twin] */
const part = (claim, twin) =>
  element(
    "div",
    { class: "part" },
    sign(claim),
    element(
      "div",
      { class: "titled" },
      element("span", {}, element("b", {}, plain(claim.id)), element("span", { class: "u" }, ` · ${claim.shown}`)),
      ...judged(claim, twin),
    ),
  );

/** What a claim needs (green), its bound (the mark) and what came out (the dot). @param {NonNullable<Claim["bar"]>} bar */
function bar({ value, bound, least, needs, said }) {
  const [low, high] = [Math.min(value, bound), Math.max(value, bound)];
  const room = high - low || Math.abs(high) || 1;
  const X = (/** @type {number} */ at) => 60 + ((at - low) / room) * (WIDTH - 120);
  const [dot, mark] = [X(value), X(bound)];
  const within = (/** @type {number} */ at, /** @type {string} */ words) =>
    Math.min(Math.max(at, wide(words) / 2), WIDTH - wide(words) / 2);
  const green = least ? rect(mark, 16, WIDTH - mark, 10, "p-holds") : rect(0, 16, mark, 10, "p-holds");
  green.setAttribute("opacity", "0.28");
  return picture(
    WIDTH,
    46,
    `Result ${said}, needed: ${needs}`,
    rect(0, 16, WIDTH, 10, "sunk"),
    green,
    path(`M${mark} 11V31`, "play"),
    svg("circle", { class: "inkf", cx: dot, cy: 21, r: 6 }),
    text(within(dot, said), 8, said, "k b mid"),
    text(within(mark, needs), 45, needs, "mid"),
  );
}
