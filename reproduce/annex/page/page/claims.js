// A claim as a card: its verdict, the sentence, what it needs and what came out, and why.
import { bound } from "./bars.js";
import { el } from "./elements.js";
import { capital } from "./svg.js";

const TWIN = "_in_the_paper"; // ends the id of the same claim on the paper's own points

const plain = (/** @type {string} */ id) => capital(id).replaceAll("_", " ");

const sign = (/** @type {Claim} */ { kind }) => el(`i.sign.v-${kind}`);

/** One sentence, judged once or in parts; the paper's own points stand with what they repeat. @param {Claim[]} claims @param {string} chosen */
export function card(claims, chosen) {
  const judged = (/** @type {Claim} */ { id, bar, explanation }) => {
    const twin = claims.find((other) => other.id === id + TWIN);
    const repeated = twin && el("small.twin", sign(twin), ` ${plain(twin.explanation)}`);
    return [bar && bound(bar), el("p", plain(explanation)), repeated];
  };
  const part = (/** @type {Claim} */ claim) => {
    const head = el("span", el("b", plain(claim.shown)), el("span.u", ` · ${plain(claim.id)}`));
    return el("div.part", sign(claim), el("div.titled", head, judged(claim)));
  };
  const own = claims.filter(({ id }) => !claims.some((other) => other.id + TWIN === id));
  const [first] = own;
  const parts = own.length > 1;
  return el(
    parts ? "article.claim.full" : "article.claim",
    { "data-chosen": claims.some(({ id }) => id === chosen), "data-verdict": first.verdict },
    el(
      "p.verdict",
      parts ? el("b", "Judged in parts") : [sign(first), el("b", plain(first.shown))],
      el("span.u", first.place),
    ),
    el("h3", first.sentence),
    parts ? el("div.parts", own.map(part)) : judged(first),
    !parts && el("small", plain(first.id)),
  );
}
