"""What an artifact is: a figure or table of the paper, as points, claims, and how to show them.

    Point      one marker: plain parameters, and what the paper says there
    Quantity   how one metric is shown: label, unit, factor, digits
    XAxis      which parameter the figure's x axis shows
    Claim      a sentence of the paper with a function that judges it, its tolerance fixed beforehand
    Results    the evaluated points, as a claim's function reads them
    Artifact   all of it; each module of `reproduce/artifacts/` makes one and calls it ARTIFACT

Nothing here imports more than the standard library and the light part of the project, so that artifacts can
be listed quickly. Modules of artifacts import matplotlib and the like only inside the functions that draw.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from benchmarks.records import Metric, Number, PaperValue, PointResult, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.harness.launchers import Launcher
    from ptdp_core.emulation import Emulation
    from ptdp_core.simulator import Cluster, Estimate

Scalar = int | float | str | bool | None
Take = Callable[["Point"], Mapping[str, Metric]]

NOT_IN_PAPER = "-"  # the section of an artifact that is beyond the paper


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
    parameters: Mapping[str, Scalar]
    paper: Mapping[str, PaperValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Quantity:
    """How a metric (in base unit `unit`) is shown: `value / factor` in `shown`, to `digits` decimals.

    `axis` is what the axis of a figure says, if not label and unit.
    """

    name: str
    label: str
    unit: str
    shown: str
    factor: float = 1.0
    digits: int = 1
    axis: str = ""

    @property
    def heading(self) -> str:
        """The label with its unit, as an axis or a table column says it."""
        return f"{self.label} ({self.shown})" if self.shown else self.label

    def show(self, value: float) -> str:
        """`value` (base unit) as text in the shown unit, without the unit."""
        return f"{value / self.factor:.{self.digits}f}"


@dataclass(frozen=True)
class XAxis:
    """The parameter on the x axis. With scale 'category' the points' labels are the ticks, in order."""

    parameter: str
    label: str
    scale: Literal["linear", "log2", "category"] = "linear"


@dataclass(frozen=True)
class Judgement:
    """What became of a claim: a verdict (of `benchmarks.records.VERDICTS`), why, and the numbers used."""

    verdict: str
    explanation: str
    numbers: Mapping[str, Number] = field(default_factory=dict)


class MissingResultError(LookupError):
    """A claim needs a point that has no value; its verdict is then 'inconclusive'."""


@dataclass(frozen=True)
class Results:
    """The evaluated points of one run, as claims read them."""

    points: tuple[PointResult, ...]
    fidelity: str
    scale: str = "paper"

    def point(self, key: str) -> PointResult:
        """The point of that key. Raises `MissingResultError`."""
        for point in self.points:
            if point.key == key:
                return point
        raise MissingResultError(f"point {key!r} was not evaluated")

    def value(self, key: str, metric: str) -> float:
        """A metric of a point, in base units. Raises `MissingResultError` if the point has none."""
        return _value(self.point(key), metric)

    def series(self, series: str, metric: str, by: str) -> dict[Scalar, float]:
        """A metric along a series, by parameter `by`. Raises `MissingResultError` if a point lacks it."""
        found = {p.parameters[by]: _value(p, metric) for p in self.points if p.series == series}
        if not found:
            raise MissingResultError(f"series {series!r} has no points")
        return found

    def paper_series(self, series: str, metric: str, by: str) -> dict[Scalar, float]:
        """The paper's values along a series, by parameter `by`. Raises `MissingResultError` for none."""
        found = {
            p.parameters[by]: float(p.paper[metric].value)
            for p in self.points
            if p.series == series and metric in p.paper
        }
        if not found:
            raise MissingResultError(f"the paper gives no {metric} for series {series!r}")
        return found


def _value(point: PointResult, metric: str) -> float:
    found = point.metrics.get(metric)
    if point.status != "ok" or found is None or found.value is None:
        why = f"{point.status}: {point.reason}" if point.status != "ok" else f"it has no {metric}"
        raise MissingResultError(f"point {point.key!r} has no result ({why})")
    return float(found.value)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, verbatim, and how it is judged.

    `fidelity` is the least that can test it (derived < simulated < emulated < measured): 'derived' for what
    follows from the paper's own numbers or formulas. `scales` are those whose results can: most sentences are
    about the paper's configurations, a direction shows at any scale that was made to show it. `tolerance` says in
    words what `judge` allows. `judge` reads results and returns a `Judgement`; it may raise `MissingResultError`.
    """

    id: str
    sentence: str
    place: str
    fidelity: str
    tolerance: str | None
    judge: Callable[[Results], Judgement]
    scales: tuple[str, ...] = ("paper",)


@dataclass(frozen=True)
class Setting:
    """What an artifact runs at a scale that is not the paper's, as its title and description say it there.

    `quantities`, `columns` and `x_axis` are shown there instead of the artifact's own, if given.
    """

    title: str
    description: str
    quantities: tuple[Quantity, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    x_axis: XAxis | None = None


@dataclass(frozen=True)
class Artifact:
    """A figure or table of the paper.

    - `fidelities`: those it has, the default first
    - `scales`: 'paper'; 'laptop', what is emulated; 'cpu', 'gpu', 'gpus', what is measured on such devices
    - `settings`: title and description at scales other than the paper's, by scale
    - `points(scale)`: its points, in the order of the paper
    - `quantities`: how its metrics are shown, the main one (drawn, and compared with the paper) first
    - `columns`: parameters that a table shows, by heading
    - `tolerance`: relative difference from the paper up to which a point counts as reproduced, fixed
      beforehand
    - `derive(point)`: metrics of a point at fidelity 'derived'; raises ValueError if the point makes no sense
    - `further(point, estimate, cluster)`: metrics of a simulated point beyond, or in place of, the standard ones
    - `emulated(point, emulation)`: likewise of an emulated point
    - `measure(launcher)`: called once for a run, gives what takes all metrics of a measured point where that is not a
      training step
    - `draw(artifact, record)`: a matplotlib figure made from the record alone; None for tables
    - `notes(results)`: further lines for the record, the table and the terminal
    - `files(artifact, record)`: further files to write next to the record, by name
    """

    id: str
    label: str
    section: str
    title: str
    description: str
    fidelities: tuple[str, ...]
    points: Callable[[str], tuple[Point, ...]]
    quantities: tuple[Quantity, ...]
    columns: Mapping[str, str]
    x_axis: XAxis | None = None
    scales: tuple[str, ...] = ("paper",)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    tolerance: float = 0.10
    derive: Callable[[Point], Mapping[str, Metric]] | None = None
    further: "Callable[[Point, Estimate, Cluster], Mapping[str, Metric]] | None" = None
    emulated: "Callable[[Point, Emulation], Mapping[str, Metric]] | None" = None
    measure: "Callable[[Launcher], Take] | None" = None
    draw: "Callable[[Artifact, Record], Figure] | None" = None
    notes: Callable[[Results], tuple[str, ...]] | None = None
    files: "Callable[[Artifact, Record], Mapping[str, bytes]] | None" = None

    @property
    def place(self) -> str:
        """Where it is in the paper."""
        return "not in the paper" if self.section == NOT_IN_PAPER else f"Section {self.section}"

    @property
    def main(self) -> Quantity:
        """The quantity that is drawn and compared with the paper."""
        return self.quantities[0]

    def setting(self, scale: str) -> Setting:
        """Title and description at a scale."""
        return self.settings.get(scale, Setting(self.title, self.description))

    def at(self, scale: str) -> "Artifact":
        """The artifact as it shows its results at a scale: with what its setting there has of its own."""
        own = self.setting(scale)
        return replace(
            self,
            quantities=own.quantities or self.quantities,
            columns=own.columns or self.columns,
            x_axis=own.x_axis or self.x_axis,
        )
