"""Artifacts told as data: the table `artifact` of the TOML file beside an artifact's module.

It has the fields of `Artifact` that are words, numbers and names, and a table for each of its sweeps: those of
`reproduce/papers/sc21/fig_interleaved.toml` are an example. The module has what is computed: points of its own,
metrics, drawings, judges.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, TypeVar

from reproduce.experiment import papers, published
from reproduce.experiment.artifact import Artifact, tables_beside
from reproduce.experiment.papers import NUMBER, PaperError, check_table
from reproduce.experiment.parameters import KEYS
from reproduce.experiment.quantities import CHOICES, METRICS, Quantity, XAxis
from reproduce.experiment.sweep import DEFAULTS, SCALES, Level, Point, Sweep, batches, levels
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

T = TypeVar("T", Quantity, XAxis)


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
        check_table(path, fields, TOLD)
        rows = _sweeps(fields.pop("sweeps", {}))
        _check(path, fields, rows)
        shown = {**_shown(fields), **computed}
        all_sweeps = {scale: _sweep(id, row) for scale, row in rows.items()}
        all_sweeps |= {"paper": Sweep(points)} if points else {}
        all_sweeps |= sweeps or {}
        if not all_sweeps:
            raise ValueError("lacks sweeps; needs one, such as [artifact.sweeps.paper]")
        return Artifact(id=id, sweeps=all_sweeps, **shown, **fields)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        wrong = f"there is no {error.args[0]!r}" if isinstance(error, KeyError) else " ".join(map(str, error.args))
        text = f"[{ARTIFACT}]: {wrong}; docs/adding.md has an example"
        raise PaperError(path, papers.line_of(opening.read_text(path, opening.TOML), ARTIFACT), text) from error


def _sweeps(told: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of sweeps by their scales, each with what it is `like`. Raises ValueError for a scale that is none."""
    if unknown := {scale for scales in told for scale in scales.split()} - set(SCALES):
        raise ValueError(f"no scale {min(unknown)!r}; needs one of {', '.join(SCALES)}")
    return {scale: told[row["like"]] | row if "like" in row else row for scale, row in told.items()}


def _check(path: Path, fields: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    """Raise `PaperError` or ValueError for what is missing, and for keys and parameters that are none.

    A parameter is one of a configuration, of the engine's settings, or the artifact's own, which a column shows.
    """
    if missing := [name for name in ("title", "description") if name not in fields]:
        raise ValueError(f"lacks {' and '.join(missing)}; needs title and description")
    parameters = {*PARAMETERS, *fields.get("columns", {})}
    for scale, row in rows.items():
        if not row.get("x"):
            raise ValueError(f"the sweep {scale!r} lacks x; needs levels, such as x = {{B = [8, 16]}}")
        named = row | _varied(row.get("series", ())) | _varied(row["x"])
        if named.keys() - SWEEP.keys() - parameters:
            from ptdp_core.engine.settings_file import FIELDS

            parameters.update(FIELDS)
        check_table(path, named, SWEEP, parameters)


def _varied(told: str | Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that levels vary, each with a value; of a list's levels with their labels and keys."""
    if isinstance(told, str):
        return {}
    if isinstance(told, Mapping):
        return {name: 0 for names in told if names != "labels" for name in names.split()}
    return {name: value for level in told for name, value in level.items() if name != "key"}


def _shown(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that say what is shown, which an artifact and its sweeps have alike, taken from the others."""
    made: dict[str, Any] = {}
    if "quantities" in fields:
        made["quantities"] = tuple(q for told in fields.pop("quantities") for q in _quantities(told))
    if "x_axis" in fields:
        made["x_axis"] = _made(XAxis, fields.pop("x_axis"))
    return made | {name: tuple(fields.pop(name)) for name in ("notes", "shown") if name in fields}


def _quantities(told: str | Mapping[str, Any]) -> Sequence[Quantity]:
    """A metric by its name, a choice of several by its name, or a quantity of the artifact's own."""
    if isinstance(told, str):
        known = CHOICES | {name: (metric,) for name, metric in METRICS.items()}
        if told not in known:
            hint = did_you_mean(told, tuple(known))
            raise ValueError(f"quantity {told!r}{hint}; needs a metric of docs/metrics.md, {' or '.join(CHOICES)}")
        return known[told]
    return (_made(Quantity, {"shown": "", **told}),)


def _made(kind: type[T], told: Mapping[str, Any]) -> T:
    """A quantity or an axis from its table."""
    names = tuple(field.name for field in fields_of(kind))
    if unknown := [name for name in told if name not in names]:
        raise ValueError(f"unknown key {unknown[0]!r}; needs {', '.join(names)}{did_you_mean(unknown[0], names)}")
    return kind(**told)


def _sweep(id: str, told: Mapping[str, Any]) -> Sweep:
    """A sweep: points of the paper with `published = true`, else `series` times `x`; any other key is a parameter.

    `batches` is a series for each batch size. It begins with what it is `like`, the sweep of another scale, or with
    the `configuration` of published values, by their id.
    """
    row = {name: value for name, value in told.items() if name != "like"}
    shown = _shown(row)
    shown |= {"x": x if isinstance(x := row.pop("x", ()), str) else _levels(x)}
    if "series" in row:
        shown["series"] = _levels(row.pop("series"))
    elif "batches" in row:
        shown["series"] = batches(*row.pop("batches"))
    shared = published.configuration(row.pop("configuration")) if "configuration" in row else {}
    if row.pop("published", False):
        return Sweep.published(id, **shown, **shared, **row)
    return Sweep(None, **{**shown, **shared, **row})


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
