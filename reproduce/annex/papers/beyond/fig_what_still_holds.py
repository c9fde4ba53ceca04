"""Beyond the paper: its takeaways and headline claims, on A100s with the program of 2021 and on H100s with today's.

Sweeps and judges are those of the paper's own figures; this artifact runs them once more with what an era has. Which
claims, and what is told of each, stands in `takeaways.toml`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster, Estimate, load_cluster, simulate
from reproduce.experiment import catalog, margins
from reproduce.experiment import quantities as q
from reproduce.experiment.alternatives import with_margins
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Claim, Judgement, holds_if
from reproduce.experiment.judging import within_margins
from reproduce.experiment.papers import read_toml
from reproduce.experiment.published import numbers_set_with
from reproduce.experiment.results import MissingResultError, Results, listed
from reproduce.experiment.sweep import Point, ranks_of
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.output.colours import NOTE, SHADE, VERDICT_CELLS
from reproduce.papers.shared.diagrams import box
from results.records import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from results.records import Record

A100, H100 = "A100 2021", "H100 today"
DATA = read_toml(Path(__file__).with_name("takeaways.toml"))
CROSSOVER = q.Quantity("crossover_bandwidth", "HCA bandwidth where t=16 equals t=8", "B/s", "GB/s", 1e9, 0)
CROSSING = ("fig_tensor_vs_pipeline", "B128_p4_t16")  # the figure and the point of which it is a metric
REACH = 16.0  # a crossover is looked for between 1/16 and 16 times the cluster's bandwidth
LINKS = ("hca_bandwidth", "p2p_bandwidth", "tensor_hca_bandwidth", "allreduce_hca_bandwidth")
LOOKS = {
    "holds": (VERDICT_CELLS["holds"], "holds"),
    "contradicted": (VERDICT_CELLS["contradicted"], "does not"),
    "inconclusive": (VERDICT_CELLS["inconclusive"], "open"),
    "not testable here": (VERDICT_CELLS["not testable here"], "no test"),
}


@dataclass(frozen=True)
class Lines:
    """The throughput of one line of a figure over that of another; `takeaways.toml` says what each field is."""

    by: str
    of: Any
    along: str
    over: Any = None

    def told(self, results: Results, level: float = 1.0) -> dict[str, Any]:
        """The values of words in braces; that of 'tokens' only where the quotient crosses `level`.

        Raises `MissingResultError` where no two lines have a point at one place.
        """
        lines: dict[Any, dict[Any, float]] = {}
        tokens: dict[Any, float] = {}
        for point in results.points:
            line = point.series if self.by == "series" else point.parameters[self.by]
            if self.over is None or line in (self.of, self.over):
                x = point.parameters[self.along]
                lines.setdefault(line, {})[x] = results.value(point.key, q.THROUGHPUT)
                tokens[x] = point.parameters["B"] * point.parameters["seq"] / ranks_of(point.parameters)
        of = lines.pop(self.of, {})
        over = {x: max(others) for x in of if (others := [line[x] for line in lines.values() if x in line])}
        ratios = {x: of[x] / over[x] for x in sorted(over, key=tokens.__getitem__)}
        if not ratios:
            raise MissingResultError(f"no {self.along} has two lines")
        along = [(tokens[x], ratio) for x, ratio in ratios.items()]
        at_least, at_most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        crossing = _crossing(along, level)
        return {
            "least": ratios[at_least],
            "most": ratios[at_most],
            "at_least": at_least,
            "least_gain": ratios[at_least] - 1,
            "most_gain": ratios[at_most] - 1,
            "gains": ", ".join(f"{ratio - 1:+.0%}" for ratio in ratios.values()),
            "of_kept": of[max(of)] / of[min(of)],
            "over_kept": over[max(over)] / over[min(over)],
            "first": along[0][0],
            "last": along[-1][0],
        } | ({"tokens": crossing} if crossing else {})


@dataclass(frozen=True)
class Takeaway:
    """A claim of one of the paper's figures, judged again: a row of `takeaways.toml`."""

    text: str
    figure: str
    claim: str
    tested: str
    decides: str
    shown: str
    lines: Lines | None = None
    change: Mapping[str, Any] | None = None
    series: tuple[str, ...] = ()

    @classmethod
    def of_row(cls, artifact: str, lines: Any = None, changes: Any = None, series: Any = (), **row: str) -> "Takeaway":
        """A row as it stands in the file."""
        return cls(figure=artifact, lines=lines and Lines(**lines), change=changes, series=tuple(series), **row)

    @cached_property
    def artifact(self) -> Artifact:
        """The figure whose claim it is."""
        return catalog.load(self.figure)

    @property
    def today(self) -> str:
        """What an H100's program has that the paper's had not."""
        kept = "the paper's recomputation" if self.figure in DATA["keeps_recomputation"] else "no recomputation"
        return f"fused attention, sequence parallelism, {kept}"

    @property
    def points(self) -> tuple[Point, ...]:
        """The figure's own points; only those of `series` if it names any."""
        return tuple(p for p in self.artifact.points() if not self.series or p.series in self.series)

    @property
    def original(self) -> Claim:
        """The claim as it is judged in its own figure."""
        return next(claim for claim in self.artifact.claims if claim.id == self.claim)

    def judge(self, results: Results, era: str) -> Judgement:
        """What the figure's own judge says of the era's points, inside the margins that are known.

        No other era's numbers were set with what the sentence says, so that it may be tested there alone.
        """
        claim = self.original if era == A100 else replace(self.original, set_with=(), tolerance=self.tested)
        return within_margins(claim, of_era(results, self.artifact, era))

    def number(self, results: Results, era: str) -> str:
        """The number that decides the era's verdict, in words."""
        numbers = self.judge(results, era).numbers
        values: dict[str, Any] = {name: metric.value for name, metric in numbers.items() if metric.value is not None}
        try:
            told = self.lines.told(of_era(results, self.artifact, era)) if self.lines else {}
            return self.shown.format(**values, **told)
        except (MissingResultError, KeyError):  # of an interrupted run
            return ""

    def changes(self, results: Results, era: str) -> str:
        """Where the era's verdict changes; '' if that is not known."""
        if self.change is None or self.lines is None:
            return ""
        metric, level = self.change.get("metric"), self.change.get("level", 1.0)
        here = of_era(results, self.artifact, era)
        try:
            told = self.lines.told(here, level)
        except MissingResultError:
            return ""
        if metric:
            known = [point.metrics[metric].value for point in here.points if metric in point.metrics]
            told.pop("tokens", None)
            if known and known[0]:
                told["metric"] = known[0] / self.change["unit"]
        side = "crosses" if told.keys() & {"metric", "tokens"} else "above" if told["least"] > level else "below"
        return str(self.change.get(side, "")).format(**told)


def of_era(results: Results, artifact: Artifact, era: str) -> Results:
    """An era's points of a figure, with the keys, series and labels that they have there.

    Those of 2021 have the paper's values, too: they were run, so that their memory sufficed.
    """
    originals = _originals(artifact.id, era)
    points = (
        replace(
            point,
            key=original.key,
            series=original.series,
            label=original.label,
            paper=original.paper if era == A100 else {},
        )
        for point in results.points
        if (original := originals.get(point.key))
    )
    set_with = numbers_set_with(artifact.cluster, artifact.id) if era == A100 else ()
    return replace(results, points=tuple(points), set_with=set_with)


@cache
def _originals(id: str, era: str) -> Mapping[str, Point]:
    """A figure's own points, by the keys that an era's have here."""
    row = FIGURES[id]
    return {_key(era, row.artifact, point): point for point in row.points}


def _key(era: str, artifact: Artifact, point: Point) -> str:
    return f"{era.split()[0].lower()}_{artifact.id}_{point.key}"


def _crossing(values: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where a line through (x, y), straight in the logarithm of x, crosses a level; None if it does not."""
    for (x, y), (following_x, following_y) in pairwise(values):
        if (y - level) * (following_y - level) <= 0 and y != following_y:
            return exp(log(x) + (level - y) / (following_y - y) * log(following_x / x))
    return None


ROWS = tuple(Takeaway.of_row(**row) for row in DATA["rows"])
FIGURES = {row.figure: row for row in ROWS}


def _with_techniques(parameters: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """Parameters with what a training program of today has."""
    recompute = {} if figure in DATA["keeps_recomputation"] else {"recompute": "none"}
    attention, cluster = ({name: DATA["today"][name]} for name in ("attention", "cluster"))
    return {**parameters, **attention, "sequence_parallel": parameters["t"] > 1, **recompute, **cluster}


def points() -> tuple[Point, ...]:
    """Every judged figure's points in both eras, then those of the public measurements on H100s."""
    eras = [
        Point(
            _key(era, row.artifact, point),
            f"{row.artifact.label}, {point.series}, {era}" if point.series else f"{row.artifact.label}, {era}",
            point.label,
            _with_techniques(point.parameters, row.figure) if era == H100 else point.parameters,
        )
        for row in FIGURES.values()
        for era in (A100, H100)
        for point in row.points
    ]
    public = []
    for row in DATA["public"]["points"]:
        axis, size = next(iter(row["sizes"].items()))
        parameters = {**DATA["public"]["constant"], **row["sizes"]}
        public.append(Point(f"public_{axis}{size}", row["series"], f"{axis}={size}", parameters))
    return (*eras, *public)


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float | Metric]:
    """The figure's own further metrics; and at t=16 of Figure 13 the bandwidth at which it is as fast as t=8."""
    metrics: dict[str, float | Metric] = {}
    for id, row in FIGURES.items():
        if f"_{id}_" in point.key and row.artifact.further:
            metrics |= row.artifact.metrics(row.artifact.further(point, estimate, cluster), "simulated")
    figure, key = CROSSING
    crosses = figure in point.key and point.key.endswith(key)
    if crosses and (crossover := _crossover(estimate.config, cluster)) is not None:
        metrics[CROSSOVER.name] = crossover
    return metrics


def _crossover(config: TrainingConfig, cluster: Cluster) -> float | None:
    """B/s per HCA at which 2t GPUs a tensor group are as fast as t, if that is within reach: by bisection."""
    parallel = config.parallel
    halved = replace(config, parallel=replace(parallel, t=parallel.t // 2, p=2 * parallel.p))

    def wins(factor: float) -> bool:
        faster = replace(cluster, **{name: factor * getattr(cluster, name) for name in LINKS})
        return simulate(config, faster).iteration_time < simulate(halved, faster).iteration_time

    low, high = 1 / REACH, REACH
    if wins(low) or not wins(high):
        return None
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high * cluster.tensor_hca_bandwidth


def notes(results: Results) -> tuple[str, ...]:
    """What the eras are, and what limits the comparison."""
    lines = [
        f"{A100}: Selene and the paper's program. {H100}: h100 with sequence parallelism, fused attention, no "
        "recomputation unless a figure needs it, and overlapped all-reduces; its numbers were not fitted to any run.",
        "The judges are those of the figures: a number of the paper, such as 'up to 11%', is judged as that number.",
        "Margins on H100s are from runs of other people's programs there, and wider than those on Selene.",
        "Interleaving was seen to gain 9 to 10% on GPUs of today (AMD Primus, without its configuration).",
    ]
    for row in ROWS:
        changes = {era: row.changes(results, era) for era in (A100, H100)}
        if any(changes.values()):
            lines.append(f"{row.text}: " + "; ".join(f"{era}: {text}" for era, text in changes.items()))
    return tuple(lines)


def _with_margins(record: "Record") -> Results:
    """The record's points as their claims were judged."""
    results = Results.of_record(record)
    cluster = record.provenance.cluster.name if record.provenance.cluster else ""
    named = cache(load_cluster)
    return with_margins(
        results, margins.for_judging(cluster), lambda point: named(str(point.parameters.get("cluster", cluster)))
    )


def merit(record: "Record") -> str:
    """How many of the claims still hold."""
    claims = {row.claim for row in ROWS}
    verdicts = [claim.verdict for claim in record.claims if claim.id in claims]
    return f"{verdicts.count('holds')} of {len(ROWS)} claims hold on H100s, {verdicts.count('contradicted')} do not"


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """A row for each sentence: in both eras the verdict and the number that decides, and where the verdict changes."""
    results = _with_margins(record)
    figure = theme.new_figure(theme.PAGE, 3.4)
    axes = figure.subplots()
    axes.set(xlim=(0, 10.4), ylim=(len(ROWS), -0.8))
    axes.axis("off")
    for x, text in ((0, "Claim of the paper"), (4.05, A100), (5.6, H100), (7.15, "What would change it")):
        axes.text(x, -0.4, text, fontsize=7.5, fontweight="bold", va="center")
    for y, row in enumerate(ROWS):
        axes.text(0, y + 0.3, row.text, fontsize=6.5, va="center")
        axes.text(0, y + 0.7, f"{row.artifact.label}: {row.decides}", fontsize=6, va="center", color=NOTE)
        for x, era in ((4.05, A100), (5.6, H100)):
            verdict = row.judge(results, era).verdict
            color, text = LOOKS.get(verdict, (SHADE, verdict))
            box(axes, x, y + 0.06, 1.45, 0.88, color)
            axes.text(x + 0.725, y + 0.3, text, fontsize=6.5, fontweight="bold", ha="center", va="center")
            axes.text(x + 0.725, y + 0.7, row.number(results, era), fontsize=6, ha="center", va="center")
        changes = [f"{era.split()[1]}: {text}" for era in (A100, H100) if (text := row.changes(results, era))]
        axes.text(7.15, y + 0.5, "\n".join(changes), fontsize=6, va="center")
    lines = [
        f"{record.fidelity}: ptdp on models of Selene and of an H100 cluster; tokens a GPU: of one iteration",
        "open: within the simulator's margins it may be the other one; no test: parameters were set with its number",
    ]
    theme.add_origin(figure, lines)
    return figure


ARTIFACT = told(__name__, points=points, further=further, draw=draw, merit=merit, notes=notes)


@dataclass(frozen=True)
class _Today:
    """Judges a row's sentence on H100s of today, beside A100s."""

    row: Takeaway

    @property
    def elsewhere(self) -> tuple[Claim, Artifact, str]:
        """The claim that it judges, that claim's artifact, and the cluster on which."""
        return self.row.original, self.row.artifact, str(DATA["today"]["cluster"])

    def __call__(self, results: Results) -> Judgement:
        """The verdict on H100s, beside that on A100s."""
        then, now = (self.row.judge(results, era) for era in (A100, H100))
        text = f"{A100}: {then.verdict} ({then.explanation}); {H100}: {now.verdict} ({now.explanation})"
        return Judgement(now.verdict, text, within_margins=True)


for _row in ROWS:
    _add = ARTIFACT.claim(
        f"on H100s, 8 a node, with today's techniques ({_row.today}): {_row.tested}",
        sentence=f"{_row.text}: also on H100s of today.",
        id=_row.claim,
    )
    _add(_Today(_row))


@ARTIFACT.judge
def public_measurements(results: Results) -> Judgement:
    rates = {name: [results.value(f"public_{name}{size}", q.SEQUENCES) for size in (8, 16)] for name in "tp"}
    drops = {name: two / one / 2 - 1 for name, (one, two) in rates.items()}
    measured = {"t": DATA["public"]["tensor"], "p": DATA["public"]["pipeline"]}
    names = {f"{name}=8 to 16 (measured {measured[name]:.0%})": drop for name, drop in drops.items()}
    text = f"throughput per GPU, {listed(names)}"
    return holds_if(-0.55 <= drops["t"] <= -0.30 and drops["p"] > drops["t"] / 2, text, results.numbers(**drops))
