"""Tables 4 and 5 and Figure 8: selective recomputation and sequence parallelism, in time.

One layer of the 22B model, and iterations of four models, whichever fit. The simulator was set with the rows of full
recomputation in mind; those of selective recomputation with sequence parallelism, and Table 4, were predicted before
they were in the project.
"""

from dataclasses import replace
from typing import Any

from ptdp_core import formulas
from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster, Estimate, Software, simulate
from ptdp_core.simulator.memory import layer_bytes
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, listed, word
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from results.records import PaperValue, Record

SOFTWARE = Software(overlapped_all_reduce=True, fused_accumulation=True)
ONE_LAYER, SELECTIVE, FULL, BOTH, NOTHING = "22B, one layer", "selective", "full", "selective_sequence", "none"
COMMON: dict[str, Any] = {"seq": 2048, "vocab": 51200, "t": 8, "d": 1}
LARGER = "530B, 2240 GPUs"
SOURCES = tuple(f"korthikanti/{name}" for name in ("table_4", "table_5", "figure_8"))
MODELS: dict[str, dict[str, Any]] = {
    ONE_LAYER: {"layers": 1, "hidden": 6144, "heads": 64, "p": 1, "v": 1, "b": 4, "B": 4},
    "22B": {"layers": 48, "hidden": 6144, "heads": 64, "p": 1, "v": 1, "b": 4, "B": 4},
    "175B": {"layers": 96, "hidden": 12288, "heads": 96, "p": 8, "v": 3, "b": 1, "B": 64},
    "530B": {"layers": 105, "hidden": 20480, "heads": 128, "p": 35, "v": 3, "b": 1, "B": 280},
    LARGER: {"layers": 105, "hidden": 20480, "heads": 128, "p": 35, "v": 3, "b": 1, "B": 2240, "d": 8},
    "1T": {"layers": 128, "hidden": 25600, "heads": 160, "p": 64, "v": 1, "b": 1, "B": 512},
}
TECHNIQUES: dict[str, tuple[str, dict[str, Any]]] = {
    NOTHING: ("nothing recomputed", {"recompute": "none"}),
    "sequence": ("sequence parallel", {"recompute": "none", "sequence_parallel": True}),
    SELECTIVE: ("selective", {"recompute": "selective"}),
    BOTH: ("selective, sequence parallel", {"recompute": "selective", "sequence_parallel": True}),
    FULL: ("full", {"recompute": "full"}),
}
ITERATIONS = ("22B", "175B", "530B", "1T")  # of Table 5

FORWARD, BACKWARD = "layer_forward_time", "layer_backward_time"
OVERHEAD, KEPT, SHARE = "layer_overhead", "layer_activations", "activation_share"
MODEL_FLOPS, HARDWARE_FLOPS = "model_flops_utilization", "hardware_flops_utilization"


def points() -> tuple[Point, ...]:
    """Every model with every technique, with what their tables and Figure 8 say of it."""
    return tuple(
        Point(
            f"{model.replace(', ', '_').replace(' ', '_')}_{name}",
            model,
            technique,
            {**COMMON, **sizes, **changes},
            printed(model, name),
        )
        for model, sizes in MODELS.items()
        for name, (technique, changes) in TECHNIQUES.items()
    )


def printed(model: str, technique: str, sources: tuple[str, ...] = SOURCES) -> dict[str, PaperValue]:
    """What the paper says of a model with a technique."""
    found: dict[str, PaperValue] = {}
    for source in sources:
        for row in published.rows(source):
            if (row["model"], row["technique"]) == (model, technique):
                found |= published.paper_values(source, row)
    return found


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """Times of a layer's passes, FLOP/s of the model and of the hardware over the peak, and activations that are kept.

    The overhead of a layer's time, and the share of its activations, are over those with nothing recomputed and no
    sequence parallelism.
    """
    config, parallel = estimate.config, estimate.config.parallel
    plain = replace(config, parallel=replace(parallel, recompute="none", sequence_parallel=False))
    forward, backward = _layer_times(estimate)
    baseline = sum(_layer_times(simulate(plain, cluster)))
    metrics = {
        FORWARD: forward,
        BACKWARD: backward,
        OVERHEAD: (forward + backward) / baseline - 1,
        KEPT: layer_bytes(config).kept,
        SHARE: layer_bytes(config).kept / layer_bytes(plain).kept,
    }
    if point.series != ONE_LAYER:  # whose iteration is mostly not the layer's
        possible = estimate.iteration_time * parallel.n * cluster.peak_flops
        executed = formulas.hardware_flops_per_iteration(config.model, parallel.B, parallel.recompute)
        model_flops = formulas.model_flops_per_iteration(config.model, parallel.B)
        metrics[MODEL_FLOPS] = model_flops / possible
        metrics[HARDWARE_FLOPS] = executed / possible
    return metrics


def _layer_times(estimate: Estimate) -> tuple[float, float]:
    """Seconds of a layer's forward pass, and of its backward pass with what is recomputed, for one microbatch."""
    phases, parallel = estimate.phase_times, estimate.config.parallel
    layers = estimate.config.model.layers * parallel.m / parallel.p  # that a GPU passes a microbatch through
    return phases["forward"] / layers, (phases["recompute"] + phases["backward"]) / layers


def merit(record: Record) -> str:
    """How far the iteration times are from the published ones, of full and of selective recomputation."""
    results = Results.of_record(record)
    keys = [f"{model}_{technique}" for model in ITERATIONS for technique in (FULL, BOTH)]
    times = {key: float(results.point(key).paper[q.ITERATION.name].value) for key in keys}
    errors = [abs(results.value(key, q.ITERATION) / time - 1) for key, time in times.items()]
    return f"{sum(errors) / len(errors):.1%} from {len(errors)} iterations that Korthikanti et al. measured"


ARTIFACT = told(__name__, points=points, software=SOFTWARE, further=further, merit=merit)


def config(model: str, technique: str, **changes: Any) -> TrainingConfig:
    """The configuration of a model with a technique, and other parameters changed."""
    return TrainingConfig.from_plain({**COMMON, **MODELS[model], **TECHNIQUES[technique][1], **changes})


@ARTIFACT.judge
def saves_70_and_65_percent(results: Results) -> Judgement:
    saved, more = {}, {}
    for model in ("175B", "530B"):
        selective, nothing = (config(model, name, t=1) for name in (SELECTIVE, NOTHING))
        saved[model] = 1 - layer_bytes(selective).kept / layer_bytes(nothing).kept
        sizes = selective.model
        more[model] = formulas.attention_core_flops(sizes, 1) / formulas.layer_forward_flops(sizes, 1)
    said = ((saved, (0.70, 0.65), 0.01), (more, (0.027, 0.016), 0.001))
    near = all(
        abs(value - wanted) <= digit / 2
        for values, numbers, digit in said
        for value, wanted in zip(values.values(), numbers, strict=True)
    )
    text = f"memory saved {listed(saved, '{:.1%}')}; FLOPs repeated {listed(more, '{:.2%}')}"
    return holds_if(near, text, results.numbers(**{word(f"saved {model}"): value for model, value in saved.items()}))


@ARTIFACT.judge
def both_make_it_fit(results: Results) -> Judgement:
    status, peaks = {}, {}
    for name in (NOTHING, BOTH):
        points = {model: results.point(f"{model}_{name}") for model in ITERATIONS}
        status[name] = {point.status for point in points.values()}
        if not status[name] <= {"ok", "oom"}:
            raise MissingResultError("a point was not evaluated")
        needed = {model: float(point.metrics["peak_memory"].value or 0) for model, point in points.items()}
        peaks[name] = listed(needed, "{:.0f}", 1e9)
    text = f"GB needed with nothing recomputed {peaks[NOTHING]}; with both techniques {peaks[BOTH]}"
    return holds_if(status == {NOTHING: {"oom"}, BOTH: {"ok"}}, text)
