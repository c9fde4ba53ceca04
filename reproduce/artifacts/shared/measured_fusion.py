"""Fused operators for real: each operator and a whole training step, unfused and fused (Sections 4.2 and 5.8)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.records import Metric
from reproduce.experiment.artifact import Take
from reproduce.experiment.parameters import settings_of
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Level, Point, Sweep, level

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher
    from benchmarks.suite.fused_step import Fusion

STEP = "training step"
OPERATORS = ("causal_softmax", "masked_softmax", "attention_dropout", "bias_gelu", "bias_dropout_add")
SAMPLES = {"cpu": 7, "cuda": 20}
QUANTITIES = (
    Quantity("speedup", "speed-up by fusion", "1", "", 1, 2),
    Quantity("unfused_time", "unfused", "s", "ms", 1e-3, 2),
    Quantity("fused_time", "fused", "s", "ms", 1e-3, 2),
    Quantity("forward_speedup", "forward", "1", "", 1, 2),
    Quantity("backward_speedup", "backward", "1", "", 1, 2),
    Quantity("unfused_throughput", "unfused", "FLOP/s", "teraFLOP/s", 1e12, 2),
    Quantity("fused_throughput", "fused", "FLOP/s", "teraFLOP/s", 1e12, 2),
)


def sweep(kernels: str, **model: Any) -> Sweep:
    """Each operator of Section 4.2 and a whole training step, unfused and fused by `kernels`."""
    settings: dict[str, Any] = {"b": 2, "B": 4, "d": 1, "recompute": "none", "dropout": 0.1}
    return Sweep(
        series=(Level("", "fusion", {"kernels": kernels}),),
        x=(
            level(STEP, what=STEP),
            *(level(name, what=name, measured_with=STEP) for name in OPERATORS),
        ),
        description="Forward and backward pass of each operator of Section 4.2, at the paper's width, and a whole "
        f"training step: unfused (eager PyTorch) and fused ({kernels}). FLOP/s by the paper's count (eq. 3).",
        quantities=QUANTITIES,
        columns={"what": "what", "kernels": "kernels"},
        **settings,
        **model,
    )


def measure(launcher: "Launcher") -> Take:
    """A function that gives a point's metrics; all points are measured together, when it is first called."""
    from benchmarks.harness.points import Once

    shared: list[Once[Fusion]] = []

    def take(point: Point) -> Mapping[str, Metric]:
        if not shared:
            shared.append(Once(lambda: _fusion(launcher, point)))
        fusion = shared[0]()
        return _of_step(point, fusion) if point.parameters["what"] == STEP else _of_operator(point, fusion)

    return take


def _fusion(launcher: "Launcher", point: Point) -> "Fusion":
    from benchmarks.suite.fused_step import measure_here

    device = point.parameters["device"]
    fusion: Fusion = launcher(measure_here, 1, (settings_of(point.parameters), SAMPLES[device]), device)[0]
    return fusion


def _of_step(point: Point, fusion: "Fusion") -> dict[str, Metric]:
    from benchmarks.harness.points import rate, seconds
    from benchmarks.suite.fused_step import UNFUSED
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


def _of_operator(point: Point, fusion: "Fusion") -> dict[str, Metric]:
    """Medians of forward and of backward passes, whose sum is the operator's time."""
    from statistics import median

    from benchmarks.suite.fused_step import UNFUSED

    what, kernels = point.parameters["what"], point.parameters["kernels"]
    times: dict[str, dict[str, tuple[float, ...]]] = {}
    for measured in fusion.operators:
        if measured.parameters["operator"] == what and measured.series in (UNFUSED, kernels):
            if measured.reason:
                raise RuntimeError(f"{what} with {measured.series}: {measured.reason}")
            passes = {way: measured.metrics[f"{way}_time"].samples or () for way in ("forward", "backward")}
            times[measured.series] = {way: tuple(map(float, samples)) for way, samples in passes.items()}
    unfused, fused = times[UNFUSED], times[str(kernels)]
    metrics = {f"{way}_speedup": _ratio(median(unfused[way]) / median(fused[way])) for way in ("forward", "backward")}
    for name, passes in (("unfused", unfused), ("fused", fused)):
        both = tuple(map(sum, zip(passes["forward"], passes["backward"], strict=False)))
        metrics[f"{name}_time"] = Metric(sum(map(median, passes.values())), "s", "measured", both)
    speedup = sum(map(median, unfused.values())) / sum(map(median, fused.values()))
    return {**metrics, "speedup": _ratio(speedup)}


def _ratio(value: float) -> Metric:
    return Metric(value, "1", "derived")
