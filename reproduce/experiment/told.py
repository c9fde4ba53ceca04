"""Artifacts and claims told as data: the TOML file beside an artifact's module, and a paper's `claims.toml`.

The table `artifact` of the file has the fields of `Artifact` that are words, numbers and names, and a table for each of
its sweeps: those of `reproduce/papers/sc21/fig_interleaved.toml` are an example. The module has what is computed:
points of its own, metrics, drawings, judges.

A claim of `claims.toml` is checked and given its judge (`bounded.Bounded`). One with a `reason` in place of a metric is
a sentence that no artifact here is about; one with `nothing` is a claim on an artifact that no result of it can decide,
and says why.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as fields_of
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from reproduce.experiment import papers, published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.bounded import BOUNDS, PUBLISHED, REDUCED, Bounded
from reproduce.experiment.claims import NOTHING, OURS, RULES, Claim, Judgement, allowed
from reproduce.experiment.papers import NUMBER, Paper, PaperError, check_table, line_of, read_toml, tables_beside
from reproduce.experiment.quantities import CHOICES, METRICS, Quantity, XAxis
from reproduce.experiment.sweep import DEFAULTS, KEYS, SCALES, Level, Point, Sweep, batches, levels
from results import opening
from results.records.errors import did_you_mean

ARTIFACT = "artifact"  # the table
# Keys of the table and of a sweep's, and what each is; a sweep's others are parameters.
TOLD: dict[str, Any] = dict.fromkeys(("label", "section", "title", "subject", "description"), str)
TOLD |= dict.fromkeys(("quantities", "shown", "notes"), list)
TOLD |= dict.fromkeys(("columns", "x_axis", "units", "sweeps"), dict) | {"tolerance": NUMBER}
SWEEP: dict[str, Any] = dict.fromkeys(("like", "configuration", "title", "description"), str)
SWEEP |= {
    "x": object,
    "series": object,
    "published": bool,
    "batches": list,
    "quantities": list,
    "columns": dict,
    "x_axis": dict,
}
PARAMETERS = {*KEYS, "gpus", "gpus_per_node"}.union(*DEFAULTS.values())
OF_TYPE: dict[Any, Any] = {float: NUMBER, int: int}
AXIS, OF_QUANTITY = ({item.name: OF_TYPE.get(item.type, str) for item in fields_of(kind)} for kind in (XAxis, Quantity))

CLAIMS = "claims.toml"
NEEDED = ("id", "table", "sentence", "place")
SAID = ("tested", "untested", "miss", "hit")
AS_GIVEN = ("of", "over", "less", "match", "which", "rule", "digits", "inexact", "short", "narrow")
# Keys of a claim, and what each is.
CLAIM: dict[str, Any] = dict.fromkeys(NEEDED, str) | {"metric": str | list, "of": dict, "over": dict | str}
CLAIM |= {"less": dict, "match": str, "which": str, **dict.fromkeys(BOUNDS, NUMBER), "rule": str}
CLAIM |= {"printed": NUMBER | list, "step": NUMBER, "digits": bool, "judged_on": str, "set_with": list}
CLAIM |= {"inputs": list, "inexact": NUMBER, "short": NUMBER, **dict.fromkeys(SAID, str), "narrow": bool}
CLAIM |= {"reason": str, "nothing": str}
CHOSEN = {"which": tuple(REDUCED), "match": ("label", "series"), "judged_on": ("results", PUBLISHED)}


def told(
    module: str,
    points: Callable[[], tuple[Point, ...]] | None = None,
    sweeps: Mapping[str, Sweep] | None = None,
    **computed: Any,
) -> Artifact:
    """The artifact of a module, by the module's name, whose id is that of its file in its paper.

    `points` are those of scale 'paper', `sweeps` the sweeps that are not told, `computed` the other fields of
    `Artifact`, mostly functions. Raises `PaperError` for a table that is not as it should be.
    """
    path = Path(str(sys.modules[module].__file__)).with_suffix(".toml")
    *_, paper, name = module.split(".")
    id = papers.paper(paper).id_of(name)
    fields = dict(tables_beside(path).get(ARTIFACT, {}))
    try:
        check_table(path, fields, TOLD, ("title", "description"), place=(ARTIFACT,))
        rows = fields.pop("sweeps", {})
        if unknown := {scale for scales in rows for scale in scales.split()} - set(SCALES):
            raise ValueError(f"no scale {min(unknown)!r}; needs one of {', '.join(SCALES)}")
        parameters = {*PARAMETERS, *fields.get("columns", {})}
        all_sweeps = {
            scale: _sweep(path, id, scale, rows[row["like"]] | row if "like" in row else row, parameters)
            for scale, row in rows.items()
        }
        all_sweeps |= {"paper": Sweep(points)} if points else {}
        all_sweeps |= sweeps or {}
        if not all_sweeps:
            raise ValueError("lacks sweeps; needs one, such as [artifact.sweeps.paper]")
        artifact = Artifact(id=id, sweeps=all_sweeps, **{**_shown(path, fields, ARTIFACT), **computed}, **fields)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        wrong = f"there is no {error.args[0]!r}" if isinstance(error, KeyError) else " ".join(map(str, error.args))
        text = f"[{ARTIFACT}]: {wrong}; docs/adding.md has an example"
        raise PaperError(path, line_of(path, ARTIFACT), text) from error
    artifact.judge_told(module)
    return artifact


def _shown(path: Path, fields: dict[str, Any], *place: str) -> dict[str, Any]:
    """The fields that say what is shown, which an artifact and its sweeps have alike, taken from the others.

    A quantity is a metric by its name, a choice of several by its name, or one of the artifact's own.
    """
    made: dict[str, Any] = {name: tuple(fields.pop(name)) for name in ("notes", "shown") if name in fields}
    if "x_axis" in fields:
        check_table(path, axis := fields.pop("x_axis"), AXIS, place=(*place, "x_axis"))
        made["x_axis"] = XAxis(**axis)
    known = CHOICES | {name: (metric,) for name, metric in METRICS.items()}
    quantities: list[Quantity] = []
    for quantity in fields.pop("quantities", ()):
        if isinstance(quantity, Mapping):
            check_table(path, quantity, OF_QUANTITY, place=(*place, "quantities"))
            quantities.append(Quantity(**{"shown": "", **quantity}))
        elif quantity in known:
            quantities += known[quantity]
        else:
            hint = did_you_mean(quantity, tuple(known))
            raise ValueError(f"quantity {quantity!r}{hint}; needs a metric of docs/metrics.md, {' or '.join(CHOICES)}")
    return made | ({"quantities": tuple(quantities)} if quantities else {})


def _sweep(path: Path, id: str, scale: str, told: dict[str, Any], parameters: set[str]) -> Sweep:
    """A sweep: points of the paper with `published = true`, else `series` times `x`; any other key is a parameter.

    `batches` is a series for each batch size. It begins with what it is `like`, the sweep of another scale, or with
    the `configuration` of published values, by their id. A parameter is one of a configuration, of the engine's
    settings, or the artifact's own, which a column shows. Raises `PaperError` or ValueError for what is missing, and
    for keys and parameters that are none.
    """
    if not told.get("x"):
        raise ValueError(f"the sweep {scale!r} lacks x; needs levels, such as x = {{B = [8, 16]}}")
    named = told | _varied(told.get("series", ())) | _varied(told["x"])
    if named.keys() - SWEEP.keys() - parameters:
        from ptdp_core.engine.settings_file import FIELDS

        parameters.update(FIELDS)
    place = (ARTIFACT, "sweeps", scale)
    check_table(path, named, SWEEP, (), parameters, place)
    row = {name: value for name, value in told.items() if name != "like"}
    shown = _shown(path, row, *place)
    shown |= {"x": x if isinstance(x := row.pop("x"), str) else _levels(x)}
    if "series" in row:
        shown["series"] = _levels(row.pop("series"))
    elif "batches" in row:
        shown["series"] = batches(*row.pop("batches"))
    shared = published.configuration(row.pop("configuration")) if "configuration" in row else {}
    if row.pop("published", False):
        return Sweep.published(id, **shown, **shared, **row)
    return Sweep(None, **{**shown, **shared, **row})


def _varied(told: str | Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that levels vary, each with a value; of a list's levels with their labels and keys."""
    if isinstance(told, str):
        return {}
    if isinstance(told, Mapping):
        return {name: 0 for names in told if names != "labels" for name in names.split()}
    return {name: value for level in told for name, value in level.items() if name != "key"}


def _levels(told: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> tuple[Level, ...]:
    """A list of levels, or `{"p t" = [[2, 4], ...], labels = "..."}`: those of `levels`."""
    if isinstance(told, Mapping):
        labels = told.get("labels", "")
        ((names, values),) = ((names, values) for names, values in told.items() if names != "labels")
        return levels(names, *values, labels=labels)
    return tuple(
        Level(row["label"], row["key"], {name: value for name, value in row.items() if name not in ("label", "key")})
        for row in told
    )


@cache
def entries(paper: Paper) -> tuple[dict[str, Any], ...]:
    """The claims of a paper's file, checked, each with the `line` in which it begins. Raises `PaperError`."""
    path = paper.folder / CLAIMS
    if not os.path.exists(path):
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
    """Raise `PaperError` for keys that are missing, unknown, of another kind or impossible together."""
    judged = "reason" not in entry and "nothing" not in entry
    check_table(path, entry, CLAIM, (*NEEDED, "metric") if judged else NEEDED, first=line)
    wrong = {key: f"one of {', '.join(words)}" for key, words in CHOSEN.items() if entry.get(key) not in (None, *words)}
    if entry.get("inexact") and (entry.get("over"), entry.get("which", "every")) != (PUBLISHED, "every"):
        wrong["inexact"] = f"over = {PUBLISHED!r}, of every value"
    for key, needs in wrong.items():
        raise PaperError(path, line_of(path, key, first=line), f"{key} = {entry[key]!r}; needs {needs}")
    if judged:
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
        said: dict[str, Any] = {name: " ".join(entry[name].split()) for name in SAID if name in entry}
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
