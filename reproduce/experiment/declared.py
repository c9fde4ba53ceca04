"""Claims that are data, in a paper's `claims.toml`: read, checked, and given their judge (`bounded.Bounded`).

An entry with a `reason` in place of a metric is a sentence that no artifact here is about; one with `nothing` is a
claim on an artifact that no result of it can decide, and says why.
"""

from collections.abc import Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.bounded import BOUNDS, PUBLISHED, REDUCED, Bounded
from reproduce.experiment.bounds import RULES, allowed
from reproduce.experiment.claims import NOTHING, OURS, Claim, Judgement
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.papers import Paper, PaperError, read_toml
from results import opening
from results.records.errors import did_you_mean

CLAIMS = "claims.toml"
NEEDED = ("id", "table", "sentence", "place")
RULED = ("rule", "printed", "step")
JUDGED = ("metric", "of", "over", "less", "match", "which", *BOUNDS, *RULED, "digits", "judged_on", "set_with")
TOLD = ("tested", "untested", "miss", "hit")
AS_GIVEN = ("of", "over", "less", "match", "which", "rule", "digits", "inexact", "short", "narrow")
KNOWN = (*NEEDED, *JUDGED, "inputs", "inexact", "short", *TOLD, "narrow", "reason", "nothing")


@cache
def entries(paper: Paper) -> tuple[dict[str, Any], ...]:
    """The claims of a paper's file, checked, each with the `line` in which it begins. Raises `PaperError`."""
    path = paper.folder / CLAIMS
    if not opening.exists(path):
        return ()
    listed = read_toml(path).get("claims", [])
    rows = opening.read_text(path, opening.TOML).splitlines()
    lines = [number for number, row in enumerate(rows, 1) if row.strip() == "[[claims]]"]
    seen: dict[str, int] = {}
    for line, entry in zip(lines, listed, strict=True):
        _check_claim(path, line, entry)
        if entry["id"] in seen:
            text = f"claim {entry['id']!r} stands in line {seen[entry['id']]} already; needs an id of its own"
            raise PaperError(path, line, text)
        if entry["table"] not in paper.names:
            near = did_you_mean(entry["table"], paper.names)
            raise PaperError(path, line, f"no table {entry['table']!r}; needs one of {', '.join(paper.names)}{near}")
        seen[entry["id"]] = line
    return tuple({**entry, "line": line} for line, entry in zip(lines, listed, strict=True))


def _check_claim(path: Path, line: int, entry: Mapping[str, Any]) -> None:
    """Raise `PaperError` for keys that are missing, unknown or impossible together."""
    for key in entry:
        if key not in KNOWN:
            raise PaperError(path, line, f"unknown key {key!r}{did_you_mean(key, KNOWN)}; needs {', '.join(KNOWN)}")
    needed = NEEDED if "reason" in entry or "nothing" in entry else (*NEEDED, "metric")
    if missing := [key for key in needed if not entry.get(key)]:
        raise PaperError(path, line, f"the claim lacks {', '.join(missing)}; needs {', '.join(needed)}")
    if entry.get("which", "every") not in REDUCED:
        raise PaperError(path, line, f"which = {entry['which']!r}; needs one of {', '.join(REDUCED)}")
    if entry.get("match", "label") not in ("label", "series"):
        raise PaperError(path, line, f"match = {entry['match']!r}; needs label or series")
    if entry.get("judged_on", "results") not in ("results", PUBLISHED):
        raise PaperError(path, line, f"judged_on = {entry['judged_on']!r}; needs results or {PUBLISHED}")
    for key in ("inexact", "short"):
        if not isinstance(entry.get(key, 0.0), int | float):
            raise PaperError(path, line, f"{key} = {entry[key]!r}; needs a number")
    if entry.get("inexact") and (entry.get("over"), entry.get("which", "every")) != (PUBLISHED, "every"):
        raise PaperError(path, line, f"inexact = {entry['inexact']!r}; needs over = {PUBLISHED!r}, of every value")
    if "reason" not in entry and "nothing" not in entry:
        try:
            bounds_of(entry)
        except ValueError as error:
            raise PaperError(path, line, str(error)) from None


def bounds_of(entry: Mapping[str, Any], tolerance: float = 0.10) -> dict[str, float]:
    """The bounds of a claim: those that its rule gives for the number `printed`, or those that stand there.

    `printed` is one number, the two of a range, or, with `less`, the two whose difference is judged; `step` is what
    their last digit counts. A value over the paper's own
    is held against the number 1, one with `digits` against what is printed of it, one that is 'reproduced' against the
    `tolerance` of its table. Raises ValueError for a rule that is
    unknown, or bounds that do not follow from it.
    """
    rule, given = entry.get("rule", ""), {name: entry[name] for name in BOUNDS if name in entry}
    if rule and rule not in RULES:
        raise ValueError(f"rule = {rule!r}{did_you_mean(rule, tuple(RULES))}; needs one of {', '.join(RULES)}")
    numbers = [*given.values(), entry.get("step", 0.0)]
    if not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"the claim has no bound; needs a number as {' or '.join(BOUNDS)}")
    printed = entry.get("printed", 1.0 if entry.get("over") == PUBLISHED else None)
    if entry.get("digits") and not given:
        given = {"at_least": 1.0, "at_most": 1.0}
    if rule == "range" and printed is not None:
        least, most = (allowed("rounding", end, entry.get("step", 0.0)) for end in printed)
        return {"at_least": least[0], "at_most": most[1]}
    if rule == "rounding" and isinstance(printed, list):
        larger, smaller = (allowed(rule, number, entry.get("step", 0.0)) for number in printed)
        return {"at_least": larger[0] - smaller[1], "at_most": larger[1] - smaller[0]}
    if not given and printed is not None and rule and RULES[rule].interval is not None:
        names = ("above", "below") if RULES[rule].open else ("at_least", "at_most")
        step = tolerance if rule == "reproduced" else entry.get("step", 0.0)
        ends = zip(names, allowed(rule, printed, step), strict=True)
        return {name: end for name, end in ends if abs(end) != inf}
    if "printed" in entry:
        raise ValueError(f"printed = {printed!r} with rule = {rule!r}; needs a rule that gives bounds, and no others")
    if not given:
        raise ValueError(f"the claim has no bound; needs a number as {' or '.join(BOUNDS)}, or as printed with a rule")
    return given


def claims_of(paper: Paper, name: str, artifact: Artifact) -> list[Claim]:
    """The claims of the paper's file on an artifact, by its name in the paper. Raises `PaperError`."""
    claims = []
    for entry in entries(paper):
        if entry["table"] != name or "reason" in entry:
            continue
        sentence = " ".join(entry["sentence"].split())
        if "nothing" in entry:
            why = " ".join(entry["nothing"].split())
            told = (entry["id"], sentence, entry["place"], artifact.fidelities[0], f"{NOTHING}{why}")
            claims.append(Claim(*told, lambda results: Judgement("not testable here", "")))
            continue
        of_paper = entry.get("judged_on") == PUBLISHED
        metric = entry["metric"]
        said: dict[str, Any] = {name: " ".join(entry[name].split()) for name in TOLD if name in entry}
        judge = Bounded(
            metrics=(metric,) if isinstance(metric, str) else tuple(metric),
            bounds=bounds_of(entry, artifact.tolerance),
            of_paper=of_paper,
            inputs=tuple(entry.get("inputs", ())),
            shown=METRICS | {quantity.name: quantity for quantity in artifact.quantities},
            **{name: entry[name] for name in AS_GIVEN if name in entry},
            **said,
        )
        place = OURS if paper.ours else entry["place"]
        fidelity = "derived" if of_paper else artifact.fidelities[0]
        rule, set_with = entry.get("rule") or ("ours" if paper.ours else ""), tuple(entry.get("set_with", ()))
        judged = (fidelity, judge.tolerance, judge)
        claims.append(Claim(entry["id"], sentence, place, *judged, rule=rule, set_with=set_with))
    return claims
