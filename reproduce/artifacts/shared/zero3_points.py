"""Table 2 and Figure 10 show the same runs, PTD-P and ZeRO-3: their points, metrics, and how they are compared."""

from collections.abc import Mapping
from typing import Any

from benchmarks.records import Metric
from ptdp_core.simulator import Cluster, Estimate
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Level, Point, Sweep, level

TABLE = "table_zero3"
ZERO3, PTDP = "ZeRO-3", "PTD-P"
MODELS = ("175B", "530B")
DAYS = "training_time"
TOKENS = 300e9
DAY_S = 86400
# t8 x p12 and t8 x p35: the table prints the product only.
MODEL_PARALLEL = {"175B": 96, "530B": 280}
DID_NOT_FIT = "zero_3_530b_560"
QUANTITIES = (
    q.THROUGHPUT,
    q.Quantity(DAYS, "training on 300B tokens", "d", "days", 1, 0),
    q.ITERATION,
    q.Quantity("data_parallel_time", "exposed data-parallel", "s", "s", 1, 2),
    q.PEAK_MEMORY,
)
# ZeRO-3 is FSDP2 there; B = 8 and b = 1 on every number of ranks.
_MEASURED: dict[str, Any] = {
    "series": (
        Level(PTDP, "ptd_p", {"t": 2, "model_parallel": 2}),
        Level(ZERO3, "zero_3", {"data_parallel": "zero3", "model_parallel": 1}),
    ),
    "x": tuple(level(f"{n} ranks", gpus=n) for n in (2, 4)),
    "b": 1,
    "B": 8,
}
MEASURED = {"cpu": Sweep(**_MEASURED, layers=4), "gpus": Sweep(**_MEASURED)}


def model_sizes(model: str) -> dict[str, int]:
    """Layers, hidden size, heads, sequence length and vocabulary of '175B' (GPT-3) or '530B' (in Table 1)."""
    if model == "175B":
        return published.model("fig_interleaved")
    row = next(row for row in published.rows("table_weak_scaling") if name_of(row["parameters_B"]) == model)
    return {**{name: row[name] for name in ("layers", "hidden", "heads")}, **published.text_sizes()}


def name_of(billions: float) -> str:
    """'175B' for 174.6."""
    return f"{round(billions / 5) * 5}B"


def key_of(scheme: str, model: str, gpus: int) -> str:
    """The key of a point, such as 'ptd_p_175b_384'."""
    return f"{scheme.replace('-', '_')}_{model}_{gpus}".lower()


def rows() -> tuple[Point, ...]:
    """The twelve rows of Table 2, in its order."""
    return tuple(_point(row) for row in published.rows(TABLE))


def did_not_fit() -> Point:
    """530 billion parameters on 560 GPUs at b=4 with ZeRO-3, which the paper's asterisk says does not fit."""
    like = next(row for row in published.rows(TABLE) if row["scheme"] == PTDP and row["gpus"] == 560)
    point = _point({**like, "scheme": ZERO3, "b": 4})
    return Point(point.key, point.series, f"{point.label}, b=4", {**point.parameters, "expected": "oom"})


def _point(row: Mapping[str, Any]) -> Point:
    scheme, model, gpus = row["scheme"], name_of(row["parameters_B"]), row["gpus"]
    parameters: dict[str, Any] = {
        "model": model,
        "gpus": gpus,
        **model_sizes(model),
        "b": row["b"],
        "B": row["B"],
    }
    if scheme == ZERO3:
        parameters |= {"p": 1, "t": 1, "d": gpus, "data_parallel": "zero3", "model_parallel": 1}
    else:
        size, t = MODEL_PARALLEL[model], published.gpus_per_node()
        parameters |= {"p": size // t, "t": t, "d": gpus // size, "v": 1, "model_parallel": size}
    paper = published.paper_values(TABLE, row)
    return Point(key_of(scheme, model, gpus), f"{scheme}, {model}", f"{gpus} GPUs", parameters, paper)


def training_time(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, Metric]:
    """Days for 300 billion tokens: T/(Bs) iterations (Section 5.1)."""
    config = estimate.config
    iterations = TOKENS / (config.parallel.B * config.model.seq)
    return {DAYS: Metric(iterations * estimate.iteration_time / DAY_S, "d", "simulated")}


def along(results: Results, scheme: str, model: str, metric: str | q.Quantity) -> dict[int, float]:
    """A metric of one scheme and model by number of GPUs, ascending; the point that did not fit is left out."""
    rows = Results(tuple(point for point in results.points if point.key != DID_NOT_FIT), results.fidelity)
    return dict(sorted(rows.series(f"{scheme}, {model}", metric, "gpus").items()))


def advantage(results: Results, model: str, doubling: int) -> float:
    """PTD-P's throughput over ZeRO-3's minus 1, `doubling` doublings above the fewest GPUs.

    The fewest GPUs of 530B are 560 for PTD-P and 640 for ZeRO-3, as in Table 2.
    """
    ours, theirs = (list(along(results, scheme, model, q.THROUGHPUT).values()) for scheme in (PTDP, ZERO3))
    return ours[doubling] / theirs[doubling] - 1
