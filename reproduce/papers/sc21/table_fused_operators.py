"""Section 5.8: throughput with and without the fused operators of Section 4.2."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import parameters
from reproduce.annex import part
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Take
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, numbers_of
from reproduce.experiment.sweep import PAPER, Level, Point, Sweep, level, settings_of
from reproduce.experiment.told import told
from reproduce.papers.shared.paper_models import sizes_of
from results.records import Metric

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher

ID = "table_fused_operators"
GPT_3, LARGER = "GPT-3 175B", "530B"
STEP = "training step"
OPERATORS = ("causal_softmax", "masked_softmax", "attention_dropout", "bias_gelu", "bias_dropout_add")
SAMPLES = {"cpu": 7, "cuda": 20}
# What the paper leaves open: one model replica, p and t as elsewhere, 1F1B, a batch large enough for p.
SHARED = {"d": 1, "v": 1, "b": 1, "t": 8}
CONFIGURATIONS = {
    GPT_3: {**sizes_of("175B"), **SHARED, "p": 12, "B": 60},
    LARGER: {**sizes_of("530B"), **SHARED, "p": 35, "B": 280},
}


def points() -> tuple[Point, ...]:
    """Both models, unfused and fused."""
    return tuple(
        Point(
            key=f"{row['model'].lower().replace('-', '').replace(' ', '_')}_{'fused' if row['fused'] else 'unfused'}",
            series=row["model"],
            label="fused" if row["fused"] else "unfused",
            parameters={**CONFIGURATIONS[row["model"]], "fused": row["fused"]},
            paper=published.paper_values(ID, row),
        )
        for row in published.rows(ID)
    )


def measured(kernels: str, **model: Any) -> Sweep:
    """Each operator of Section 4.2 and a whole training step, unfused and fused by `kernels`."""
    return Sweep(
        series=(Level("", "fusion", {"kernels": kernels}),),
        x=(level(STEP, what=STEP), *(level(name, what=name, measured_with=STEP) for name in OPERATORS)),
        description="Forward and backward pass of each operator of Section 4.2, at the paper's width, and a whole "
        f"training step: unfused (eager PyTorch) and fused ({kernels}). FLOP/s by the paper's count (eq. 3).",
        quantities=(
            q.Quantity("speedup", "speed-up by fusion", "1", "", 1, 2),
            q.Quantity("unfused_time", "unfused", "s", "ms", 1e-3, 2),
            q.Quantity("fused_time", "fused", "s", "ms", 1e-3, 2),
            q.Quantity("forward_speedup", "forward", "1", "", 1, 2),
            q.Quantity("backward_speedup", "backward", "1", "", 1, 2),
            q.Quantity("unfused_throughput", "unfused", "FLOP/s", "teraFLOP/s", 1e12, 2),
            q.Quantity("fused_throughput", "fused", "FLOP/s", "teraFLOP/s", 1e12, 2),
        ),
        columns={"what": "what", "kernels": "kernels"},
        d=1,
        **model,
    )


UNFUSED = "reference"  # what eager PyTorch is called among the implementations of an operator


def measure(launcher: "Launcher") -> Take:
    """A function that gives a point's metrics; all points are measured together, when it is first called."""
    from benchmarks.harness.points import Once

    measure_here = part("bench", "fused_step").measure_here
    shared: list[Once[Any]] = []

    def take(point: Point) -> Mapping[str, Metric]:
        if not shared:
            device = point.parameters["device"]
            arguments = settings_of(point.parameters), SAMPLES[device]
            shared.append(Once(lambda: launcher(measure_here, 1, arguments, device)[0]))
        fusion = shared[0]()
        return _of_step(point, fusion) if point.parameters["what"] == STEP else _of_operator(point, fusion)

    return take


def _of_step(point: Point, fusion: Any) -> dict[str, Metric]:
    from benchmarks.harness.points import rate, seconds
    from ptdp_core.formulas import flops_per_iteration

    settings = settings_of(point.parameters)
    flops = flops_per_iteration(settings.model, settings.parallel.B)
    unfused, fused = fusion.step[UNFUSED], fusion.step[settings.engine.kernels]
    return {
        "unfused_time": seconds(unfused),
        "fused_time": seconds(fused),
        "unfused_throughput": rate(flops, unfused, "FLOP/s"),
        "fused_throughput": rate(flops, fused, "FLOP/s"),
        "speedup": _ratio(unfused.median / fused.median),
    }


def _of_operator(point: Point, fusion: Any) -> dict[str, Metric]:
    """Medians of forward and of backward passes, whose sum is the operator's time."""
    from statistics import median

    what, kernels = point.parameters["what"], point.parameters["kernels"]
    times: dict[str, dict[str, tuple[float, ...]]] = {}
    for result in fusion.operators:
        if result.parameters["operator"] == what and result.series in (UNFUSED, kernels):
            if result.reason:
                raise RuntimeError(f"{what} with {result.series}: {result.reason}")
            passes = {way: result.metrics[f"{way}_time"].samples or () for way in ("forward", "backward")}
            times[result.series] = {way: tuple(map(float, samples)) for way, samples in passes.items()}
    unfused, fused = times[UNFUSED], times[str(kernels)]
    metrics = {f"{way}_speedup": _ratio(median(unfused[way]) / median(fused[way])) for way in ("forward", "backward")}
    for name, passes in (("unfused", unfused), ("fused", fused)):
        both = tuple(map(sum, zip(passes["forward"], passes["backward"], strict=False)))
        metrics[f"{name}_time"] = Metric(sum(map(median, passes.values())), "s", "measured", both)
    return {**metrics, "speedup": _ratio(sum(map(median, unfused.values())) / sum(map(median, fused.values())))}


def _ratio(value: float) -> Metric:
    return Metric(value, "1", "derived")


ARTIFACT = told(
    __name__,
    points=points,
    sweeps={
        "cpu": measured(
            "compiled", layers=2, hidden=512, heads=8, seq=256, vocab=1024, b=2, B=4, recompute="none", dropout=0.1
        ),
        # What an H100 has run: `results/reference/gpu/first_run.json`.
        "gpu": measured(
            "triton", hidden=2304, heads=24, b=4, B=16, recompute="full", dtype="bf16", loss_scale=1.0, dropout=0.0
        ),
    },
    measure=measure,
)


def _gain(results: Results, model: str, stated: float) -> Judgement:
    """Judge the gain by fusion, to its digits.

    Of a step at another size it says what was measured there, which neither holds nor contradicts the paper's number.
    """
    if results.scale != PAPER:
        step = next((point for point in results.points if point.label == STEP), None)
        if step is None:
            raise MissingResultError("no training step was measured")
        before, after = (results.value(step.key, f"{name}_throughput") for name in ("unfused", "fused"))
        size = parameters(settings_of(step.parameters).model)
        text = (
            f"measured at another size, of {size / 1e9:.2f} billion parameters on one GPU"
            f": {after / before - 1:+.0%}, from {before / 1e12:.1f} to {after / 1e12:.1f} teraFLOP/s; the "
            f"sentence's {stated:+.0%} is of {model}"
        )
        return Judgement("not testable here", text, results.numbers(gain_at_another_size=after / before - 1))
    ours, paper = (read(model, q.THROUGHPUT, "fused") for read in (results.series, results.paper_series))
    gain, theirs = (values[True] / values[False] - 1 for values in (ours, paper))
    text = f"{gain:+.1%}, the paper's levels {theirs:+.1%}"
    numbers = results.numbers(gain=gain) | numbers_of("paper", paper_gain=theirs)
    return holds_if(abs(gain - stated) <= 0.005, text, numbers)


def _levels(results: Results, model: str) -> Judgement:
    """Judge the throughputs before and after fusion."""
    ours, paper = (read(model, q.THROUGHPUT, "fused") for read in (results.series, results.paper_series))
    off = {fused: value / paper[fused] - 1 for fused, value in ours.items()}
    text = (
        f"{ours[False] / 1e12:.1f} and {ours[True] / 1e12:.1f} teraFLOP/s per GPU ({off[False]:+.1%} and "
        f"{off[True]:+.1%} "
        "of the paper's)"
    )
    numbers = results.numbers(unfused_off=off[False], fused_off=off[True])
    return holds_if(all(abs(ours[fused] - paper[fused]) <= 0.5e12 for fused in ours), text, numbers)


@ARTIFACT.judge
def fusion_175b(results: Results) -> Judgement:
    return _gain(results, GPT_3, 0.19)


@ARTIFACT.judge
def fusion_530b(results: Results) -> Judgement:
    return _gain(results, LARGER, 0.11)
