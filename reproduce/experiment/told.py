"""Artifacts told as data: the table `artifact` of the TOML file beside an artifact's module.

It has the fields of `Artifact` that are words, numbers and names, and a table for each of its sweeps: those of
`reproduce/papers/sc21/fig_interleaved.toml` are an example. The module has what is computed: points of its own,
metrics, drawings, judges.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduce.experiment import papers, published
from reproduce.experiment.artifact import Artifact, tables_beside
from reproduce.experiment.papers import PaperError
from reproduce.experiment.quantities import CHOICES, METRICS, Quantity, XAxis
from reproduce.experiment.sweep import Level, Point, Sweep, batches, levels
from results import opening
from results.records.errors import did_you_mean

ARTIFACT = "artifact"  # the table
TOLD = (
    *("label", "section", "title", "subject", "description", "quantities", "columns", "shown", "x_axis", "tolerance"),
    *("notes", "units", "sweeps"),
)


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
        _check(fields)
        shown = {**_shown(fields), **computed}
        rows = fields.pop("sweeps", {})
        all_sweeps = {
            scale: _sweep(id, rows[row["like"]] | row if "like" in row else row) for scale, row in rows.items()
        }
        all_sweeps |= {"paper": Sweep(points)} if points else {}
        return Artifact(id=id, sweeps=all_sweeps | dict(sweeps or {}), **shown, **fields)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        text = f"[{ARTIFACT}]: {' '.join(map(str, error.args))}; docs/adding.md has an example"
        raise PaperError(path, papers.line_of(opening.read_text(path, opening.TOML), ARTIFACT), text) from error


def _check(fields: Mapping[str, Any]) -> None:
    """Raise ValueError for a field that is none, or one that is missing."""
    if unknown := fields.keys() - TOLD:
        name = min(unknown)
        raise ValueError(f"unknown field {name!r}{did_you_mean(name, TOLD)}; needs some of {', '.join(TOLD)}")
    if missing := [name for name in ("title", "description") if name not in fields]:
        raise ValueError(f"lacks {' and '.join(missing)}; needs title and description")


def _shown(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that say what is shown, which an artifact and its sweeps have alike, taken from the others."""
    made: dict[str, Any] = {}
    if "quantities" in fields:
        made["quantities"] = tuple(q for told in fields.pop("quantities") for q in _quantities(told))
    if "x_axis" in fields:
        made["x_axis"] = XAxis(**fields.pop("x_axis"))
    return made | {name: tuple(fields.pop(name)) for name in ("notes", "shown") if name in fields}


def _quantities(told: str | Mapping[str, Any]) -> Sequence[Quantity]:
    """A metric by its name, a choice of several by its name, or a quantity of the artifact's own."""
    if isinstance(told, str):
        known = CHOICES | {name: (metric,) for name, metric in METRICS.items()}
        if told not in known:
            hint = did_you_mean(told, tuple(known))
            raise ValueError(f"quantity {told!r}{hint}; needs a metric of docs/metrics.md, {' or '.join(CHOICES)}")
        return known[told]
    return (Quantity(**{"shown": "", **told}),)


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
