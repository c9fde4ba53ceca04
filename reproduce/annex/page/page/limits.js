// What limits an iteration: the resources by their share of its time, and what one change after another would give.
import { across, gains, shares } from "./bars.js";
import { button, byId, el, fill as put } from "./elements.js";
import { update } from "./page.js";
import { fitted } from "./svg.js";

/** The resources by their share of an iteration's time, and a button that tries changes. @param {any} about the configuration on its cluster */
export const refresh = (about) => update("limits", "limits", about, (found) => show(found, about));

/** @param {{ said: string, parts: Share[] }} found @param {any} about */
function show({ said: words, parts }, about) {
  const tried = () => update("changes", "changes", about, ({ changes }) => showChanges(changes));
  put(
    "limited",
    el("h2", `What limits it: ${words}`),
    el(
      "p.note",
      "What an iteration’s time goes to, in %: computing divided by a second simulation with faster memory.",
    ),
    fitted(el("div.plot"), (width) => across(shares(parts), width)),
    el("p#changes", button("Try one change after another", tried, ".btn#limits")),
  );
}

/** @param {Gain[]} found */
function showChanges(found) {
  const gained = found.filter(({ fits, faster_by }) => fits && faster_by > 0.002).map(({ change: what }) => what);
  const rows = gains(found.filter(({ faster_by }) => Math.abs(faster_by) >= 0.001));
  byId("changes").replaceWith(
    el("h3", `What would help: ${gained.slice(0, 2).join(", then ") || "nothing that was tried"}`),
    el("p.note", "Tokens per second gained or lost, in %, when one thing changes. Dashed: it does not fit."),
    fitted(el("div.plot"), (width) => across([...rows.slice(0, 7), ...rows.slice(7).slice(-3)], width)),
  );
}
