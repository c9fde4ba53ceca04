"""Table 2 and Figure 10 show the same runs, PTD-P and ZeRO-3: their points, metrics, and how they are compared."""

from collections.abc import Mapping
from typing import Any

from benchmarks.records import Metric, PaperValue
from ptdp_core.simulator import Cluster, Estimate
from reproduce.artifacts.shared.grids import THROUGHPUT, THROUGHPUT_QUANTITY
from reproduce.experiment import published
from reproduce.experiment.artifact import Point, Quantity, Results, Scalar

TABLE = "table_zero3"
ZERO3, PTDP = "ZeRO-3", "PTD-P"
MODELS = ("175B", "530B")
DAYS = "training_time"
TOKENS = 300e9
DAY_S = 86400
# t8 x p12 and t8 x p35: the table prints the product only.
MODEL_PARALLEL = {"175B": 96, "530B": 280}
# The model sizes are those of the paper: GPT-3 (Section 5.3.2) and Table 1's 530 billion.
GPT_3 = {"layers": 96, "hidden": 12288, "heads": 96}
DID_NOT_FIT = "zero_3_530b_560"

QUANTITIES = (
    THROUGHPUT_QUANTITY,
    Quantity(DAYS, "training on 300B tokens", "d", "days", 1, 0),
    Quantity("iteration_time", "iteration", "s", "s", 1, 2),
    Quantity("data_parallel_time", "exposed data-parallel", "s", "s", 1, 2),
    Quantity("peak_memory", "peak memory", "B", "GB", 1e9, 1),
)


def model_sizes(model: str) -> dict[str, int]:
    """Layers, hidden size and heads of '175B' or '530B'."""
    if model == "175B":
        return dict(GPT_3)
    rows = published.artifact("table_weak_scaling")["rows"]
    row = next(row for row in rows if name_of(row["parameters_B"]) == model)
    return {key: row[key] for key in GPT_3}


def name_of(billions: float) -> str:
    """'175B' for 174.6."""
    return f"{round(billions / 5) * 5}B"


def key_of(scheme: str, model: str, gpus: int) -> str:
    """The key of a point, such as 'ptd_p_175b_384'."""
    return f"{scheme.replace('-', '_')}_{model}_{gpus}".lower()


def rows() -> tuple[Point, ...]:
    """The twelve rows of Table 2, in its order."""
    return tuple(_point(row) for row in published.artifact(TABLE)["rows"])


def did_not_fit() -> Point:
    """530 billion parameters on 560 GPUs at b=4 with ZeRO-3, which the paper's asterisk says does not fit."""
    like = next(row for row in published.artifact(TABLE)["rows"] if row["scheme"] == PTDP and row["gpus"] == 560)
    point = _point({**like, "scheme": ZERO3, "b": 4})
    return Point(point.key, point.series, f"{point.label}, b=4", {**point.parameters, "expected": "oom"})


def _point(row: Mapping[str, Any]) -> Point:
    scheme, model, gpus = row["scheme"], name_of(row["parameters_B"]), row["gpus"]
    constants = published.constants()
    parameters: dict[str, Scalar] = {
        "model": model,
        "gpus": gpus,
        **model_sizes(model),
        "seq": constants["sequence_length"],
        "vocab": constants["vocabulary"],
        "b": row["b"],
        "B": row["B"],
    }
    if scheme == ZERO3:
        parameters |= {"p": 1, "t": 1, "d": gpus, "data_parallel": "zero3", "model_parallel": 1}
    else:
        size, t = MODEL_PARALLEL[model], constants["gpus_per_node"]
        parameters |= {"p": size // t, "t": t, "d": gpus // size, "v": 1, "model_parallel": size}
    paper = {
        THROUGHPUT: PaperValue(row["tflops_per_gpu"] * 1e12, "FLOP/s", "table", 1e12),
        DAYS: PaperValue(row["training_days_300B_tokens"], "d", "table", 1),
    }
    return Point(key_of(scheme, model, gpus), f"{scheme}, {model}", f"{gpus} GPUs", parameters, paper)


def training_time(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, Metric]:
    """Days for 300 billion tokens: T/(Bs) iterations (Section 5.1)."""
    config = estimate.config
    iterations = TOKENS / (config.parallel.B * config.model.seq)
    return {DAYS: Metric(iterations * estimate.iteration_time / DAY_S, "d", "simulated")}


def gpu_counts(results: Results, model: str, scheme: str) -> list[int]:
    """Numbers of GPUs of a scheme's points, ascending, without those expected not to fit."""
    return sorted(
        int(str(point.parameters["gpus"]))
        for point in results.points
        if point.series == f"{scheme}, {model}" and not point.parameters.get("expected")
    )


def advantage(results: Results, model: str, doubling: int, paper: bool = False) -> float:
    """PTD-P's throughput over ZeRO-3's minus 1, `doubling` doublings above the fewest GPUs; the paper's if asked for.

    The fewest GPUs of 530B are 560 for PTD-P and 640 for ZeRO-3, as in Table 2.
    """
    values = []
    for scheme in (PTDP, ZERO3):
        key = key_of(scheme, model, gpu_counts(results, model, scheme)[doubling])
        point = results.point(key)
        values.append(float(point.paper[THROUGHPUT].value) if paper else results.value(key, THROUGHPUT))
    return values[0] / values[1] - 1
