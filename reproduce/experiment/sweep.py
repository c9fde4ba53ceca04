"""What an artifact runs at one scale: points, mostly a grid of series times x values of one configuration.

    Point    one marker: plain parameters, and what the paper says there
    Level    one value of what a series or the x axis varies: a label, a part of the points' keys, parameters
    Sweep    the points at a scale, and what the artifact is called and shows there

Plain parameters describe a training configuration: `KEYS` are their names.

Scales are 'paper'; 'laptop', small enough to be emulated in real time on one machine; and what is trained for real:
'cpu' (four processes), 'gpu' (one) and 'gpus' (four).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import TYPE_CHECKING, Any

from ptdp_core.config import KEYS_ELSEWHERE, ModelConfig, ParallelConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import choices
from reproduce.experiment import published
from reproduce.experiment.quantities import Quantity, XAxis
from results.records import PaperValue
from results.records.errors import did_you_mean

if TYPE_CHECKING:
    from ptdp_core.engine.settings import Settings

Scalar = int | float | str | bool | None

KEYS = (*(field.name for part in (ModelConfig, ParallelConfig) for field in fields(part)), "cluster", "label")
REQUIRED = ("layers", "hidden", "heads", "B")
PAPER, LAPTOP, CPU, GPU, GPUS = "paper", "laptop", "cpu", "gpu", "gpus"
SCALES = (PAPER, LAPTOP, CPU, GPU, GPUS)
# Ranks of a run at each small scale, unless its sweep says otherwise.
RANKS = {LAPTOP: 8, CPU: 4, GPU: 1, GPUS: 4}
_ON_CUDA: Mapping[str, Any] = {
    "vocab": 51200, "device": "cuda", "dtype": "fp16", "loss_scale": 8192.0, "dropout": 0.1, "kernels": "auto",
}  # fmt: skip
# What every run at a scale has, unless its sweep says otherwise.
#
# On GPUs a stage's forward pass has to take at least 5 ms, or a measurement tells how fast the host issues kernels. A
# pass takes no less than its FLOPs over the peak, 989 TFLOP/s on an H100 (16 bits, dense): so 4.95 TFLOP at least. With
# 24sh^2 + 4s^2h FLOPs a layer and sequence, one GPU's 24 layers here have 5.8 TFLOP. On four GPUs with p*t*v <= 8 a
# stage has at least the work of three layers: 5.8 TFLOP, too. The states of this model, 18 bytes a parameter, are
# 45 GB on each of two GPUs, and 23 GB on each of four. (No GPU has run these sizes yet.)
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    # With few layers a stage, a large vocabulary would slow the last one down.
    LAPTOP: {"seq": 2048, "vocab": 8192, "v": 1},
    CPU: {
        "layers": 8, "hidden": 128, "heads": 4, "seq": 64, "vocab": 256,
        "device": "cpu", "dtype": "fp32", "kernels": "reference",
    },
    GPU: {**_ON_CUDA, "layers": 24, "hidden": 2048, "heads": 16, "seq": 2048},
    GPUS: {**_ON_CUDA, "layers": 24, "hidden": 4096, "heads": 32, "seq": 4096},
}  # fmt: skip
# How texts abbreviate parameters; those without a letter are not told.
LETTERS = {"layers": "l", "hidden": "h", "heads": "a", "seq": "s", "vocab": "V"} | {name: name for name in "ptdvbB"}


def ranks_of(parameters: Mapping[str, Any]) -> int:
    """Ranks of a configuration: n = p*t*d."""
    return prod(parameters.get(size, 1) for size in "ptd")


def settings_of(parameters: Mapping[str, Any]) -> "Settings":
    """The engine's settings that a point's parameters name; others do not matter. Raises ConfigurationError."""
    from ptdp_core.engine.settings_file import FIELDS, from_mapping

    sections: dict[str, dict[str, Any]] = {}
    for name, value in parameters.items():
        if name in FIELDS:
            sections.setdefault(FIELDS[name], {})[name] = value
    return from_mapping(sections)


def check_keys(entry: Any) -> None:
    """Raise ConfigurationError, naming the key, unless `entry` is an object with a point's keys and no others."""
    if not isinstance(entry, dict):
        raise ConfigurationError(f"found {json.dumps(entry)[:60]}; needs an object with the keys {', '.join(REQUIRED)}")
    for key in entry:
        if key not in KEYS:
            hint = KEYS_ELSEWHERE.get(key) or did_you_mean(key, KEYS)[2:] or f"known: {', '.join(KEYS)}"
            raise ConfigurationError(f"unknown key {key!r}; {hint}")
    if missing := [key for key in REQUIRED if key not in entry]:
        raise ConfigurationError(f"missing {', '.join(map(repr, missing))}; needs at least {', '.join(REQUIRED)}")
    for key in ("cluster", "label"):
        if not isinstance(entry.get(key, ""), str):
            raise ConfigurationError(f"{key}={entry[key]!r} is not text; needs a name in quotes")
    for key in ("schedule", "recompute", "data_parallel"):
        if key in entry and (not isinstance(entry[key], str) or not entry[key]):
            needed = " or ".join(choices(ParallelConfig).get(key, ("text in quotes",)))
            raise ConfigurationError(f"{key}={entry[key]!r} is not a name; needs {needed}, or leave it out")


@dataclass(frozen=True)
class Point:
    """One marker of a figure or row of a table.

    `parameters` are plain values: those of a training configuration (`layers, hidden, heads, seq, vocab, p,
    t, d, v, b, B, schedule, scatter_gather, recompute, data_parallel`, see `ptdp_core.config`) for
    points that are simulated, anything the artifact's `derive` understands for derived ones. They go into the
    record, and the figure is drawn from them. `key` is unique in the artifact; `label` names the point for
    people; `paper` is by metric.
    """

    key: str
    series: str
    label: str
    parameters: Mapping[str, Any]
    paper: Mapping[str, PaperValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """One value of what a series, or the x axis, varies; `key` is its part of the points' keys."""

    label: str
    key: str
    parameters: Mapping[str, Any]


def batches(*sizes: int) -> tuple[Level, ...]:
    """A series for every batch size."""
    return tuple(Level(f"Batch size = {B}", f"B{B}", {"B": B}) for B in sizes)


def level(label: str, **parameters: Any) -> Level:
    """A level whose key says its parameters: 'p2_t32'."""
    return Level(label, "_".join(f"{name}{value}" for name, value in parameters.items()), parameters)


def levels(names: str, *values: Any, labels: str = "") -> tuple[Level, ...]:
    """A level for every value of the parameters `names` ('b', or 'p t' for pairs).

    `labels` is the label with the parameters in braces; unless given, 'b=1', or '(2, 32)' for pairs.
    """
    parts = names.split()
    labels = labels or ("({" + "}, {".join(parts) + "})" if len(parts) > 1 else parts[0] + "={" + parts[0] + "}")
    rows = [dict(zip(parts, value if len(parts) > 1 else (value,), strict=True)) for value in values]
    return tuple(level(labels.format(**row), **row) for row in rows)


def printed_points(
    id: str,
    key: str,
    series: str,
    label: str,
    parameters: Callable[..., Mapping[str, Any]],
    *,
    rows: Sequence[Mapping[str, Any]] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Point, ...]:
    """A point with the paper's values for each row of an entry of `published.json`, or for each of these `rows`.

    `key`, `series` and `label` are texts with names of the row in braces. `parameters` makes a point's of a row. With
    `variants` each has all rows, `parameters` gets its flags, texts may say its `{variant}` and `{number}`, and the
    first one has the paper's values.
    """
    chosen = published.rows(id) if rows is None else rows
    made = []
    for number, (variant, flags) in enumerate((variants or {"": {}}).items()):
        for row in chosen:
            named = {**row, "variant": variant, "number": number}
            values = {} if number else published.paper_values(id, row)
            texts = slug(key.format(**named)), series.format(**named), label.format(**named)
            made.append(Point(*texts, parameters(row, **flags), values))
    return tuple(made)


def slug(text: str) -> str:
    """A text as the key of a point: small letters, digits and underscores."""
    return text.lower().replace(".", "_").replace("-", "_").replace("*", "s")


class Sweep:
    """The points of an artifact at one or several scales, and what it is called and shows there.

    Either a function that gives the points, or `series` times `x` of the configuration given by keyword arguments:
    `Sweep(gpus=8, layers=8, hidden=6144, heads=48, series=batches(16, 32), x=levels("p", 2, 4, 8))`. d is
    n/(p*t) unless a parameter says it; n is `gpus`, a level's parameter `gpus`, or the ranks of a small scale. p, t and
    b are 1 unless a parameter says otherwise. `paper` is the id in `published.json` whose values belong to the points
    of the same parameters.

    `title` completes the artifact's subject, `description`, `quantities`, `columns` and `x_axis` replace the
    artifact's own at these scales.
    """

    def __init__(
        self,
        points: Callable[[], tuple[Point, ...]] | None = None,
        *,
        series: Sequence[Level] = (),
        x: Sequence[Level] = (),
        gpus: int | None = None,
        paper: str | None = None,
        title: str = "",
        description: str = "",
        quantities: tuple[Quantity, ...] = (),
        columns: Mapping[str, str] | None = None,
        x_axis: XAxis | None = None,
        **parameters: Any,
    ) -> None:
        self._points = points
        self.series, self.x, self.gpus, self.paper = series or (Level("", "", {}),), x, gpus, paper
        self.title, self.description = title, description
        self.quantities, self.columns, self.x_axis = quantities, columns, x_axis
        self.parameters = parameters

    @classmethod
    def published(
        cls,
        id: str,
        x: str | Sequence[Level],
        series: Sequence[Level] | None = None,
        **parameters: Any,
    ) -> "Sweep":
        """The paper's points of a figure in `published.json`, in its configuration.

        `x` names the parameters of its rows that the x axis shows, 'B' or 'p t'; there is a series for every batch size
        unless `series` says otherwise. `parameters` are beside, or in place of, the published.
        """
        rows = published.rows(id)
        if isinstance(x, str):
            names = x.split()
            values = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
            x = levels(x, *(value if len(names) > 1 else value[0] for value in values))
        if series is None:
            series = batches(*dict.fromkeys(row["B"] for row in rows))
        configuration = published.configuration(id)
        gpus = configuration.pop("gpus", None)
        return cls(None, series=series, x=x, gpus=gpus, paper=id, **{**configuration, **parameters})

    def points(self, scale: str) -> tuple[Point, ...]:
        """The points at a scale."""
        if self._points is not None:
            return self._points()
        return tuple(self._point(scale, line, mark) for line in self.series for mark in self.x)

    def _point(self, scale: str, line: Level, mark: Level) -> Point:
        shared = {**DEFAULTS.get(scale, {}), **self.parameters}
        parameters: dict[str, Any] = {"p": 1, "t": 1, "b": 1, **shared, **line.parameters, **mark.parameters}
        gpus = parameters.get("gpus", self.gpus or RANKS.get(scale))
        if "d" not in parameters and gpus is not None:
            parameters["d"] = gpus // ranks_of(parameters)
        key = "_".join(filter(None, (line.key, mark.key)))
        paper = published.values(self.paper, parameters) if self.paper else {}
        return Point(key, line.label, mark.label, parameters, paper)

    def devices(self, scale: str) -> str:
        """'4 CPU processes', '1 GPU', '8 emulated GPUs': what the largest point runs on."""
        ranks = max(ranks_of(point.parameters) for point in self.points(scale))
        what = {CPU: "CPU process", LAPTOP: "emulated GPU"}.get(scale, "GPU")
        return f"{ranks} {what}" + ("es" if scale == CPU else "s") * (ranks > 1)

    def configuration(self, scale: str) -> str:
        """What all points share, by the letters of the paper: 'l=8, h=6144, p=4, b=1'."""
        first, *others = (point.parameters for point in self.points(scale))
        shared = {name: value for name, value in first.items() if all(o.get(name) == value for o in others)}
        return ", ".join(f"{letter}={shared[name]}" for name, letter in LETTERS.items() if name in shared)
