"""Figures that run one model over a grid: series (such as batch sizes) times x values (such as parallel sizes).

`grid` makes their points from the configuration in `published.json`; the paper's values are attached where they are
supplied. The rest is what these figures have in common: quantities, and notes on what is missing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.records import Number, PaperValue
from reproduce.experiment import published
from reproduce.experiment.artifact import Point, Quantity, Results, Scalar

THROUGHPUT = "throughput_per_gpu"
SEQUENCES = "sequences_per_s"
TERA = 1e12
MODEL = ("layers", "hidden", "heads")
PARALLEL = ("p", "t", "v", "b")

THROUGHPUT_QUANTITY = Quantity(
    THROUGHPUT, "throughput per GPU", "FLOP/s", "teraFLOP/s", TERA, 1, axis="Achieved teraFLOP/s per GPU"
)
QUANTITIES = (
    THROUGHPUT_QUANTITY,
    Quantity("iteration_time", "iteration", "s", "s", 1, 2),
    Quantity("bubble_fraction", "bubble", "1", "%", 0.01, 1),
    Quantity("peak_memory", "peak memory", "B", "GB", 1e9, 1),
)
DATA_TIME_QUANTITY = Quantity("data_parallel_time", "exposed gradient all-reduce", "s", "s", 1, 2)


@dataclass(frozen=True)
class Line:
    """A series: its name, a key for its points, its own parameters, and its name in the paper if that is another."""

    name: str
    key: str
    parameters: Mapping[str, Scalar]
    paper_name: str = ""


@dataclass(frozen=True)
class Mark:
    """A place on the x axis: its label, and its parameters, the one that the x axis shows first."""

    label: str
    parameters: Mapping[str, Scalar]

    @property
    def key(self) -> str:
        """'p2_t32'."""
        return "_".join(f"{name}{value}" for name, value in self.parameters.items())


def batch_lines(id: str) -> tuple[Line, ...]:
    """A series for every batch size of the figure."""
    return lines_by_batch(published.artifact(id)["config"]["B"])


def lines_by_batch(batches: Sequence[int]) -> tuple[Line, ...]:
    """A series for every batch size."""
    return tuple(Line(f"Batch size = {B}", f"B{B}", {"B": B}) for B in batches)


def batch_marks(id: str) -> tuple[Mark, ...]:
    """An x value for every batch size of the figure."""
    return marks_by_batch(published.artifact(id)["config"]["B"])


def marks_by_batch(batches: Sequence[int]) -> tuple[Mark, ...]:
    """An x value for every batch size."""
    return tuple(Mark(f"B={B}", {"B": B}) for B in batches)


def pair_marks(id: str) -> tuple[Mark, ...]:
    """An x value for every pair of parallel sizes, from the entry named '(p,t)', '(p,d)' or '(t,d)'."""
    config = published.artifact(id)["config"]
    name = next(key for key in config if key.startswith("("))
    return marks_by_pair(name.strip("()").split(","), config[name])


def marks_by_pair(names: Sequence[str], pairs: Sequence[Sequence[int]]) -> tuple[Mark, ...]:
    """An x value for every pair of two parallel sizes."""
    first, second = names
    return tuple(Mark(f"({x}, {y})", {first: x, second: y}) for x, y in pairs)


def model_parameters(id: str) -> dict[str, Scalar]:
    """Layers, hidden size, heads, sequence length and vocabulary of the figure's model."""
    config, constants = published.artifact(id)["config"], published.constants()
    plain = {key: config[key] for key in MODEL if isinstance(config.get(key), int)}
    return {**plain, "seq": constants["sequence_length"], "vocab": constants["vocabulary"]}


def grid(
    id: str,
    lines: Sequence[Line],
    marks: Sequence[Mark],
    metric: str = THROUGHPUT,
    unit: str = "FLOP/s",
    factor: float = TERA,
) -> tuple[Point, ...]:
    """The figure's points at the paper's size: `crossed`. `factor` turns the published values into `unit`."""
    config = published.artifact(id)["config"]
    shared = model_parameters(id) | {key: config[key] for key in PARALLEL if isinstance(config.get(key), int)}
    values = _paper_values(id, unit, factor)

    def paper(line: Line, mark: Mark) -> Mapping[str, PaperValue]:
        x = tuple(mark.parameters.values())
        series = values.get(line.paper_name or line.name, {})
        value = series.get(x) or series.get(x[:1])
        return {metric: value} if value else {}

    return crossed(shared, lines, marks, config["gpus"] if isinstance(config["gpus"], int) else None, paper)


def crossed(
    shared: Mapping[str, Scalar],
    lines: Sequence[Line],
    marks: Sequence[Mark],
    gpus: int | None,
    paper: Callable[[Line, Mark], Mapping[str, PaperValue]] = lambda line, mark: {},
) -> tuple[Point, ...]:
    """Every series at every x value, with what they share; on `gpus` GPUs, d = n/(p*t) unless given."""
    found = []
    for line in lines:
        for mark in marks:
            parameters = {"p": 1, "t": 1, **shared, **line.parameters, **mark.parameters}
            if gpus is not None:
                p, t = parameters["p"], parameters["t"]
                assert isinstance(p, int)
                assert isinstance(t, int)
                parameters.setdefault("d", gpus // (p * t))
            found.append(Point(f"{line.key}_{mark.key}", line.name, mark.label, parameters, paper(line, mark)))
    return tuple(found)


def _paper_values(id: str, unit: str, factor: float) -> dict[str, dict[tuple[Scalar, ...], PaperValue]]:
    """The published values by series and by the numbers of their x value."""
    entry = published.artifact(id)
    x = next(name for name in entry["series"][0]["points"][0] if name != "y")
    return {
        name: {tuple(int(n) for n in re.findall(r"\d+", str(at))): value for at, value in values.items()}
        for name, values in published.series(id, x=x, unit=unit, factor=factor).items()
    }


def notes(results: Results) -> tuple[str, ...]:
    """Which points did not fit in memory."""
    out = [f"{p.series}, {p.label}" for p in results.points if p.status == "oom"]
    return (f"Out of memory, so left out of the lines and marked by crosses: {'; '.join(out)}.",) if out else ()


def by_batch(results: Results, metric: str, by: str) -> dict[int, dict[Scalar, float]]:
    """A metric by batch size (the series) and by parameter `by`. Raises `MissingResultError`."""
    series = {int(str(point.parameters["B"])): point.series for point in results.points}
    return {B: results.series(name, metric, by) for B, name in series.items()}


def per_node(results: Results) -> int:
    """GPUs of a node: those of the points, the paper's if they do not say."""
    own = {point.parameters.get("gpus_per_node") for point in results.points} - {None}
    return int(str(own.pop())) if own else int(published.constants()["gpus_per_node"])


def word(text: str) -> str:
    """`text` as the name of a number in a record: 'PTD-P, 175B' is 'ptd_p_175b'."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def ratio(value: float, origin: str) -> Number:
    """A plain ratio, as claims keep it."""
    return Number(value, "1", origin)
