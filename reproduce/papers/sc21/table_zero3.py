"""Table 2: PTD-P against ZeRO-3 without model parallelism, 175 and 530 billion parameters.

Figure 10 shows the same runs: it takes its points and metrics, and how they are compared, from here.
"""

from collections.abc import Mapping
from typing import Any

from ptdp_core.formulas import parameters
from ptdp_core.simulator import Cluster, Estimate
from ptdp_core.simulator.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, listed, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import Level, Point, Sweep, level
from reproduce.experiment.told import told
from reproduce.papers.shared.paper_models import sizes_of

ID = "table_zero3"
ZERO3, PTDP = "ZeRO-3", "PTD-P"
MODELS = ("175B", "530B")
DAYS = "training_time"
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
STATE_BYTES = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES
GPU_BYTES, GPUS_PER_SERVER = 80e9, 8  # "8 NVIDIA 80-GB A100 GPUs"


def key_of(scheme: str, model: str, gpus: int) -> str:
    """The key of a point, such as 'ptd_p_175b_384'."""
    return f"{scheme.replace('-', '_')}_{model}_{gpus}".lower()


def rows() -> tuple[Point, ...]:
    """The twelve rows of Table 2, in its order."""
    return tuple(_point(row) for row in published.rows(ID))


def points() -> tuple[Point, ...]:
    """The twelve rows, and what the asterisk says did not fit: ZeRO-3 for 530B at b=4 on 560 GPUs."""
    like = next(row for row in published.rows(ID) if row["scheme"] == PTDP and row["gpus"] == 560)
    extra = _point({**like, "scheme": ZERO3, "b": 4})
    return (
        *rows(),
        Point(extra.key, extra.series, f"{extra.label}, b=4", {**extra.parameters, "expected": "oom"}),
    )


def _point(row: Mapping[str, Any]) -> Point:
    scheme, gpus = row["scheme"], row["gpus"]
    model = f"{round(row['parameters_B'] / 5) * 5}B"  # '175B' for 174.6
    parameters = {"model": model, "gpus": gpus, **sizes_of(model), "b": row["b"], "B": row["B"]}
    if scheme == ZERO3:
        parameters |= {"p": 1, "t": 1, "d": gpus, "data_parallel": "zero3", "model_parallel": 1}
    else:
        size, t = MODEL_PARALLEL[model], published.gpus_per_node()
        parameters |= {"p": size // t, "t": t, "d": gpus // size, "v": 1, "model_parallel": size}
    paper = published.paper_values(ID, row)
    return Point(key_of(scheme, model, gpus), f"{scheme}, {model}", f"{gpus} GPUs", parameters, paper)


def training_time(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, float]:
    """Days for 300 billion tokens: T/(Bs) iterations (Section 5.1)."""
    config = estimate.config
    iterations = 300e9 / (config.parallel.B * config.model.seq)
    return {DAYS: iterations * estimate.iteration_time / 86400}


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


ARTIFACT = told(__name__, points=points, sweeps=MEASURED, quantities=QUANTITIES, further=training_time)


def _near(results: Results, doubling: int, said: Mapping[str, float], slack: float) -> Judgement:
    """Judge PTD-P's advantage after `doubling` doublings of the GPUs by what is said of each model."""
    ours, papers = ({model: advantage(of, model, doubling) for model in MODELS} for of in (results, results.papers()))
    text = f"PTD-P over ZeRO-3: {listed(ours, '{:+.1%}')}; by the paper's rows: {listed(papers, '{:+.1%}')}"
    numbers = results.numbers(gain=ours) | numbers_of("paper", paper_gain=papers)
    return holds_if(all(abs(ours[model] - value) <= slack for model, value in said.items()), text, numbers)


@ARTIFACT.judge
def fewest_gpus_6_and_24_percent(results: Results) -> Judgement:
    return _near(results, 0, {"175B": 0.06, "530B": 0.24}, 0.005)


@ARTIFACT.judge
def doubled_gpus_70_percent(results: Results) -> Judgement:
    return _near(results, 1, dict.fromkeys(MODELS, 0.70), 0.005)


@ARTIFACT.judge
def did_not_fit_on_560(results: Results) -> Judgement:
    small, large = results.point(DID_NOT_FIT), results.point("zero_3_530b_640")
    peaks = {
        point.key: point.metrics["peak_memory"].value for point in (small, large) if "peak_memory" in point.metrics
    }
    text = "; ".join(
        f"{point.parameters['gpus']} GPUs, b={point.parameters['b']}: "
        + (f"{point.status}: {point.reason}" if point.reason else f"fits, {(peaks.get(point.key) or 0) / 1e9:.1f} GB")
        for point in (small, large)
    )
    numbers = results.numbers("B", peak_memory={key: value for key, value in peaks.items() if value})
    return holds_if(small.status == "oom" and large.status == "ok", text, numbers)


@ARTIFACT.judge
def too_large_for_a_server(results: Results) -> Judgement:
    rows = {point.parameters["model"]: point.parameters for point in results.points}
    states = {model: STATE_BYTES * parameters(model_of(rows[model])) for model in MODELS}
    text = f"states of {STATE_BYTES} bytes a parameter: " + ", ".join(
        f"{model} {size / 1e12:.2f} TB" for model, size in states.items()
    )
    text += f"; {GPUS_PER_SERVER} GPUs have {GPUS_PER_SERVER * GPU_BYTES / 1e12:.2f} TB"
    fits = min(states.values()) <= GPUS_PER_SERVER * GPU_BYTES
    return holds_if(not fits, text, numbers_of("derived", "B", states=states))
