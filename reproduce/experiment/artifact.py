"""What an artifact is: a figure or table, as sweeps of points, quantities, claims, and how it is shown.

Each module of a paper (`reproduce/papers/sc21/fig_bubble.py`) makes one and calls it ARTIFACT, mostly from a table
beside the module (`told.py`); `@ARTIFACT.judge` adds a claim that is told in a table there, `@ARTIFACT.claim(...)` one
that is told there and then.

Nothing here imports more than the standard library and the light part of the project, so that artifacts can
be listed quickly. Modules of artifacts import matplotlib and the like only inside the functions that draw.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reproduce.experiment import quantities as q
from reproduce.experiment import shaped
from reproduce.experiment.claims import OURS, Claim, Judge, OnPapersPoints
from reproduce.experiment.fidelity import FIDELITIES, PAPERS_CLUSTER
from reproduce.experiment.papers import FIRST, PaperError, check_table, line_of, tables_beside
from reproduce.experiment.quantities import Quantity, XAxis
from reproduce.experiment.results import Results
from reproduce.experiment.sized import Sized
from reproduce.experiment.sweep import CPU, PAPER, SCALES, Point, Sweep
from results.records import Metric, Record, RecordedTimeline
from results.records.errors import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.harness.launchers import Launcher
    from ptdp_core.config import TrainingConfig
    from ptdp_core.simulator import Cluster, Estimate, Software

    class EmulatedIteration(Protocol):
        """What an artifact reads of an emulated iteration (`Emulation` of the annex) or of an estimate."""

        @property
        def config(self) -> "TrainingConfig": ...

        @property
        def timeline(self) -> "Any": ...

        @property
        def peak_stash(self) -> int: ...

        @property
        def prediction(self) -> "Estimate": ...


Take = Callable[[Point], Mapping[str, Metric]]
Values = Mapping[str, float | Metric]  # by metric: a number has its unit from the artifact, and its run's origin

NOT_IN_PAPER = "-"  # the section of an artifact that is beyond the paper
IN_THE_PAPER = "_in_the_paper"  # ends the id of a claim that judges another one's sentence on the paper's own points
MEASURED_SCALES = tuple(FIDELITIES["measured"].scales)
# Keys of a claim's table, and what each is.
CLAIM: dict[str, Any] = dict.fromkeys(
    ("tested", "rule", "place", "by", "fidelity", "sentence_of", "in_the_paper", "sentence"), str
)
CLAIM |= {"scales": list, "set_with": list, "printed": dict, "about": bool} | shaped.SHAPED
AS_DATA = {"shown", "printed"}  # one of them has a table that needs no judge
NO_CLAIMS = ("artifact", shaped.VALUES)  # tables that are no claim's


def out_of_memory(results: Results) -> tuple[str, ...]:
    """A note on which points did not fit in memory."""
    out = [f"{p.series}, {p.label}" for p in results.points if p.status == "oom"]
    return (f"Out of memory, so left out of the lines and marked by crosses: {'; '.join(out)}.",) if out else ()


@dataclass(frozen=True)
class Artifact:
    """A figure or table: of the paper, or, without `label` and `section`, beyond it.

    - `label`, `section`: where it is in the paper ('Figure 12', '5.3.2')
    - `title`, `description`: what it shows at the paper's scale; titles at other scales begin with `subject`, unless
      given what `title` has before its first comma
    - `quantities`: how its metrics are shown, the main one (drawn, and compared with the paper) first
    - `sweeps`: its points, by scale ('cpu gpus' for one sweep at two scales)
    - `columns`: parameters that a table shows, with their headings; a line break in one stays where there is room
    - `shown`: the names of the columns that its tables show, if not all
    - `x_axis`: which parameter the figure's x axis shows
    - `claims`: the sentences that are judged on its results, see `claim`
    - `paper`, `cluster`: the name of its paper, and where that was measured, which is simulated by default; the catalog
      takes them from `paper.toml`
    - `tolerance`: relative difference from the paper up to which a point counts as reproduced, fixed
      beforehand
    - `units`: of metrics that its functions give, and its tables do not show
    - `derive(point)`: metrics of a point at fidelity 'derived', for an artifact that needs no simulation; raises
      ValueError if the point makes no sense
    - `software`: the training program that is simulated, if not the cluster file's
    - `further(point, estimate, cluster)`: metrics of a simulated point beyond, or in place of, the standard ones
    - `emulated(point, emulation)`: likewise of an emulated point
    - `timelines(point, emulation)`: what the record keeps of when an emulated point's passes ran
    - `measure(launcher)`: called once for a run, gives what takes all metrics of a measured point where that is not a
      training step
    - `draw(artifact, record)`: a matplotlib figure made from the record alone; None for tables
    - `looks`: color, marker and linestyle of series that a line chart should not choose itself
    - `notes`: further lines for the record, the table and the terminal, where it is not measured: these, or what
      `notes(results)` says
    - `merit(record)`: what the results show in a few words, where there is no paper to be near to
    - `files(artifact, record)`: further files to write next to the record: by name, what makes each
    """

    id: str
    title: str
    description: str
    quantities: tuple[Quantity, ...]
    sweeps: Mapping[str, Sweep]
    label: str = "Beyond the paper"
    section: str = NOT_IN_PAPER
    subject: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    x_axis: XAxis | None = None
    claims: list[Claim] = field(default_factory=list)
    paper: str = FIRST
    cluster: str = PAPERS_CLUSTER
    tolerance: float = 0.10
    units: Mapping[str, str] = field(default_factory=dict)
    derive: Callable[[Point], Values] | None = None
    software: "Software | None" = None
    further: "Callable[[Point, Estimate, Cluster], Values] | None" = None
    emulated: "Callable[[Point, EmulatedIteration], Values] | None" = None
    timelines: "Callable[[Point, EmulatedIteration], tuple[RecordedTimeline, ...]] | None" = None
    measure: "Callable[[Launcher], Take] | None" = None
    draw: "Callable[[Artifact, Record], Figure] | None" = None
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Callable[[Results], tuple[str, ...]] | tuple[str, ...] = out_of_memory
    merit: Callable[[Record], str] | None = None
    files: "Callable[[Artifact, Record], Mapping[str, Callable[[], bytes]]] | None" = None

    @property
    def place(self) -> str:
        """Where it is in the paper."""
        return OURS if self.section == NOT_IN_PAPER else f"Section {self.section}"

    @property
    def main(self) -> Quantity:
        """The quantity that is drawn and compared with the paper."""
        return self.quantities[0]

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales that it has, the default first."""
        names = (name for names in self.sweeps for name in names.split())
        return tuple(sorted(names, key=lambda name: (SCALES.index(name) if name in SCALES else len(SCALES), name)))

    @property
    def fidelities(self) -> tuple[str, ...]:
        """The fidelities that it has, the default first: those of the table that share a scale with it.

        It is derived if it has `derive`, and simulated if not.
        """
        other = "simulated" if self.derive else "derived"
        return tuple(name for name in FIDELITIES if name != other and self.scales_at(name))

    def scales_at(self, fidelity: str) -> tuple[str, ...]:
        """The scales that it has at a fidelity, the default first."""
        return tuple(scale for scale in FIDELITIES[fidelity].scales if scale in self.scales)

    def sweep(self, scale: str) -> Sweep:
        """Its sweep at a scale. Raises KeyError if it has none."""
        for names, sweep in self.sweeps.items():
            if scale in names.split():
                return sweep
        raise KeyError(f"{self.id} has no scale {scale!r}; it has: {', '.join(self.scales)}")

    def points(self, scale: str = PAPER) -> tuple[Point, ...]:
        """Its points at a scale, in the order of the paper."""
        return self.sweep(scale).points(scale)

    def at(self, scale: str) -> "Artifact":
        """The artifact as it shows its results at a scale: title, description, quantities, columns, x axis, notes."""
        if scale == self.scales[0] or scale not in self.scales:
            return self
        sweep = self.sweep(scale)
        quantities = sweep.quantities or self.quantities
        if scale == CPU:
            quantities = tuple(map(q.on_cpu, quantities))
        if scale in MEASURED_SCALES:
            quantities = (*quantities, q.TOKENS)
        subject = self.subject or self.title.partition(",")[0]
        return replace(
            self,
            title=f"{subject}, {sweep.title or sweep.devices(scale)}",
            description=sweep.description or _description(subject, sweep, scale, quantities[0].name),
            quantities=quantities,
            columns=self.columns if sweep.columns is None else sweep.columns,
            x_axis=sweep.x_axis or self.x_axis,
            notes=() if scale in MEASURED_SCALES else self.notes,
        )

    def metrics(self, values: Values, origin: str) -> dict[str, Metric]:
        """What its functions give of a point as metrics, of this origin unless they are metrics already."""
        units = {metric.name: metric.unit for metric in (*q.METRICS.values(), *self.quantities)} | dict(self.units)
        return {
            name: value if isinstance(value, Metric) else Metric(value, units[name], origin)
            for name, value in values.items()
        }

    def notes_on(self, results: Results) -> tuple[str, ...]:
        """Its notes on the results of a run."""
        return self.notes(results) if callable(self.notes) else self.notes

    def judge(self, judge: Judge) -> Judge:
        """Make a function the judge of the claim that is told beside its module: `fig_bubble.toml`.

        The table of its name there has the arguments of `add`: `tested` is the tolerance, `in_the_paper` that on the
        paper's points, `sentence_of` names the claim whose sentence is judged once more, 'sc21.fig_bubble.NAME' that of
        another artifact. Without a sentence the function's docstring is it. Raises `PaperError` for what is wrong.
        """
        path = Path(str(sys.modules[judge.__module__].__file__)).with_suffix(".toml")
        self._judge(path, judge.__name__, judge)
        self.judge_told(judge.__module__, after=judge.__name__)
        return judge

    def judge_told(self, module: str, after: str = "") -> None:
        """Add the claims whose tables need no function: the first of the file, or those that come after one's table."""
        path = Path(str(sys.modules[module].__file__)).with_suffix(".toml")
        tables = tables_beside(path)
        names = [name for name in tables if name not in NO_CLAIMS]
        for name in names[names.index(after) + 1 if after else 0 :]:
            if not AS_DATA & tables[name].keys():
                break
            self._judge(path, name)

    def _judge(self, path: Path, name: str, judge: Judge | None = None) -> None:
        """Add the claim of a table, judged by a function, or as the table says. Raises `PaperError`."""
        tables = tables_beside(path)
        if name not in tables:
            raise PaperError(path, 1, f"claim {name!r} has no table in {path.name}; needs one; try [{name}]")
        needed = () if judge or "sentence_of" in tables[name] else ("sentence",)
        check_table(path, tables[name], CLAIM, needed, place=(name,))
        told: dict[str, Any] = dict(tables[name])
        told |= {key: tuple(told[key]) for key in ("scales", "set_with") if key in told}
        if of := told.pop("sentence_of", ""):
            elsewhere, _, other = of.rpartition(".")
            artifact = import_module(f"reproduce.papers.{elsewhere}").ARTIFACT if elsewhere else self
            sentences = {claim.id: claim.sentence for claim in artifact.claims}
            if other not in sentences:
                text = f"sentence_of = {of!r}; needs a claim told before it{did_you_mean(other, tuple(sentences))}"
                raise PaperError(path, line_of(path, name), text)
            told["sentence"] = sentences[other]
        tested, in_the_paper = told.pop("tested", None), told.pop("in_the_paper", "")
        try:
            if "printed" in told:
                sized = judge = Sized(told.pop("printed"), told.pop("about", False))
                tested, told["fidelity"], told["rule"] = sized.tested, "derived", "ours" if sized.about else "rounding"
            judge = judge or shaped.judge_of(path, name, told)
            self.add(judge, tested, papers_points=in_the_paper, id=name, **told)
        except ValueError as error:
            raise PaperError(path, line_of(path, name), str(error)) from error

    def claim(self, tolerance: str | None, place: str = "", **told: Any) -> Callable[[Judge], Judge]:
        """Make a function the judge of the sentence in its docstring: `@ARTIFACT.claim("within 5%", "Section 5.1")`.

        The arguments are those of `add`.
        """
        return lambda judge: self.add(judge, tolerance, place, **told)

    def add(
        self,
        judge: Judge,
        tolerance: str | None,
        place: str = "",
        *,
        sentence: str = "",
        scales: tuple[str, ...] = (PAPER,),
        fidelity: str | None = None,
        id: str | None = None,
        papers_points: str = "",
        rule: str = "",
        set_with: tuple[str, ...] = (),
        by: str = "",
    ) -> Judge:
        """Add a claim, of which the function is the judge, and return the function.

        The place is the artifact's own unless given. A `sentence` stands in place of the docstring. The claim's id is
        the function's name unless `id` is given, its fidelity the artifact's default one, its rule 'ours' where the
        sentence is not the paper's. Other parameters are those of `Claim`. With `papers_points` the same function
        judges the paper's own points, too, as a claim '..._in_the_paper' of fidelity 'derived', whose tolerance it is,
        or, if it ends with a colon, stands before the tolerance. `by` is the claim's `tested_by`. Raises ValueError for
        an id that there is already, and without a sentence.
        """
        name = id or judge.__name__
        if any(claim.id == name for claim in self.claims):
            raise ValueError(f"claim {name!r} stands twice in {self.id}; needs an id of its own; try another name")
        if not (said := sentence or judge.__doc__):
            hint = "needs a docstring; try without python -OO, if it has one"
            raise ValueError(f"claim {name!r} has no sentence; {hint}")
        said = " ".join(line.strip() for line in said.strip().splitlines())
        needs = fidelity or self.fidelities[0]
        where = place or self.place
        bound_by = rule or ("ours" if where == OURS else "")
        claim = Claim(name, said, where, needs, tolerance, judge, scales, bound_by, set_with, by)
        self.claims.append(claim)
        if papers_points:
            self.claims.append(
                replace(
                    claim,
                    id=f"{name}{IN_THE_PAPER}",
                    place=f"{claim.place}, in the paper's own points",
                    fidelity="derived",
                    tolerance=f"{papers_points} {tolerance}" if papers_points.endswith(":") else papers_points,
                    judge=OnPapersPoints(judge),
                    scales=(PAPER,),
                    set_with=(),
                )
            )
        return judge


def _description(subject: str, sweep: Sweep, scale: str, metric: str) -> str:
    """What runs at a scale: on what, which series at which points, what all points share, which FLOPs are counted."""
    points = sweep.points(scale)
    series = " and ".join(name for name in dict.fromkeys(point.series for point in points) if name)
    count = "without recomputed passes" if metric == q.MODEL_THROUGHPUT.name else "by the paper's count (eq. 3)"
    steps = "Real training steps of a GPT on" if scale in MEASURED_SCALES else "A size for"
    return (
        f"{subject}. {steps} {sweep.devices(scale)}: {series}{' at ' if series else ''}"
        f"{', '.join(dict.fromkeys(point.label for point in points))}; {sweep.configuration(scale)} at every point. "
        f"FLOP/s {count}."
    )
