"""Section 3.5: how many layers to recompute together, for the models of Table 1."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptdp_core.formulas import optimal_kept_inputs
from ptdp_core.simulator import Cluster, Estimate, simulate
from ptdp_core.simulator.memory import layer_bytes, stash_bytes, working_bytes
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, argmax, listed
from reproduce.experiment.sweep import Point, Sweep
from reproduce.experiment.told import told
from reproduce.papers.shared import paper_models

INPUT, INTERMEDIATE, STAGE = "input_bytes", "intermediate_bytes", "stage_layers"
CHECKPOINTS, EVERY = "optimal_checkpoints", "optimal_layers_per_checkpoint"
BEST, PEAK, BEST_PEAK, WORST_PEAK = "best_layers_per_checkpoint", "peak_memory", "peak_at_best", "peak_at_worst"
SPREAD, WITHOUT, USABLE = "throughput_spread", "peak_without_recomputation", "usable_memory"
ACTIVATIONS = "activations_of_a_microbatch"
CHOICE = 2  # layers in a model chunk, up to which every 1 or 2 is all that can be


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """The formula's optimum, and the simulated optimum over every number of layers that are recomputed together."""
    config = estimate.config
    layers = config.layers_per_chunk
    one = layer_bytes(config)
    c = optimal_kept_inputs(layers, one.input, one.intermediate)
    tried = {k: _with(estimate, cluster, checkpoint_layers=k) for k in range(1, layers + 1)}
    peaks = {k: candidate.peak_memory for k, candidate in tried.items()}
    rates = [candidate.throughput_per_gpu for candidate in tried.values()]
    best = min(peaks, key=lambda k: peaks[k])
    none = _with(estimate, cluster, recompute="none", checkpoint_layers=1)
    every = min(max(1, round(layers / c)), layers)  # a layer is recomputed whole
    at_optimum = replace(config, parallel=replace(config.parallel, checkpoint_layers=every))
    again = layer_bytes(at_optimum)
    return {
        STAGE: layers,
        CHECKPOINTS: c,
        EVERY: every,
        BEST: best,
        INPUT: one.input,
        INTERMEDIATE: one.intermediate,
        BEST_PEAK: peaks[best],
        WORST_PEAK: max(peaks.values()),
        WITHOUT: none.peak_memory,
        USABLE: cluster.usable_memory,
        ACTIVATIONS: stash_bytes(at_optimum, cluster, layers, again) + working_bytes(at_optimum, False, again),
        SPREAD: max(rates) / min(rates) - 1,
    }


def _with(estimate: Estimate, cluster: Cluster, **changes: Any) -> Estimate:
    config = estimate.config
    return simulate(replace(config, parallel=replace(config.parallel, **changes)), cluster)


ARTIFACT = told(__name__, sweeps={"paper": Sweep(x=paper_models.levels_of_table_1(recompute="full"))}, further=further)


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {value:.0f}" for model, value in values.items())


def _judge_few(results: Results, metric: str, how: str) -> Judgement:
    stages = {model: layers for model, layers in results.by_label(STAGE).items() if layers > CHOICE}
    layers = {model: value for model, value in results.by_label(metric).items() if model in stages}
    few = [model for model, value in layers.items() if value in (1, 2)]
    text = (
        f"{how}, layers per checkpoint: {_shown(layers)}; 1 or 2 for {len(few)} of the {len(layers)} models that could "
        f"have more (layers in a model chunk: {_shown(stages)})"
    )
    numbers = results.numbers(share=len(few) / len(layers))
    return holds_if(len(few) > 0.5 * len(layers), text, numbers)


@ARTIFACT.judge
def every_1_or_2_by_formula(results: Results) -> Judgement:
    return _judge_few(results, EVERY, "by the formula")


@ARTIFACT.judge
def every_1_or_2_simulated(results: Results) -> Judgement:
    return _judge_few(results, BEST, "by the simulated peak of the fullest GPU")


@ARTIFACT.judge
def total_memory(results: Results) -> Judgement:
    counted = results.by_label(ACTIVATIONS)
    layers, every, kept, intermediate = (results.by_label(name) for name in (STAGE, EVERY, INPUT, INTERMEDIATE))
    formula = {m: kept[m] * -(-layers[m] // every[m]) + every[m] * intermediate[m] for m in counted}
    off = {model: counted[model] / formula[model] - 1 for model in counted}
    worst = argmax(off, abs)
    text = (
        f"activations counted over the formula's: {listed(off, '{:+.0%}')}; counted are also the gradients that the "
        "backward pass of a layer has beside its activations"
    )
    return holds_if(abs(off[worst]) <= 1e-9, text, results.numbers(largest_difference=off[worst]))


@ARTIFACT.judge
def recomputation_required(results: Results) -> Judgement:
    need, have = results.by_label(WITHOUT), results.by_label(USABLE)
    pipelined = [point.label for point in results.points if point.parameters["p"] > 1]
    fit = [model for model in pipelined if need[model] <= have[model]]
    text = f"GB needed without recomputation: {_shown({model: need[model] / 1e9 for model in pipelined})}; " + (
        f"{', '.join(fit)} would fit" if fit else f"none fits {have[pipelined[0]] / 1e9:.0f} GB"
    )
    return holds_if(not fit, text)
