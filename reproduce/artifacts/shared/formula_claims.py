"""Judging sentences that follow, or do not, from the paper's own formulas and numbers: 'derived', no simulation.

Where an object of this project does what a formula counts (the schedules, the operator inventory, the checks of a
configuration), the sentence is judged on that object.
"""

from typing import Any

from benchmarks.records import Number
from ptdp_core import formulas
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layout import chunk_layers
from ptdp_core.schedules import bubble_fraction, build
from ptdp_core.simulator import operators
from reproduce.artifacts.shared.models import GPT_3, model_of, table_1
from reproduce.experiment import published
from reproduce.experiment.results import Judgement, Results, holds_if, listed, strictly_decreasing

APPROXIMATELY = 0.05


def _derived(value: float, unit: str = "1") -> Number:
    return Number(value, unit, "derived")


def half_of_time_flushing(results: Results) -> Judgement:
    """The largest share of an iteration that the bubble takes over Figure 6's configurations."""
    shares = {}
    for row in published.rows("fig_bubble"):
        bubble = formulas.bubble_fraction_data_parallel(row["n"], row["d"], row["b_prime"])
        shares[f"n={row['n']}, b'={row['b_prime']}, d={row['d']}"] = bubble / (1 + bubble)
    worst = max(shares, key=lambda name: shares[name])
    text = f"bubble over the whole iteration, largest of Figure 6's configurations: {shares[worst]:.1%} at {worst}"
    return holds_if(0.45 <= shares[worst] <= 0.5, text, {"largest_share": _derived(shares[worst])})


def more_microbatches_less_flush(results: Results) -> Judgement:
    """Whether the executed flush takes a smaller share the more microbatches there are for each stage."""
    bubbles = {m: float(bubble_fraction(build("1f1b", 8, m), 1, 2)) for m in (8, 16, 32, 64, 128)}
    shares = {m: bubble / (1 + bubble) for m, bubble in bubbles.items()}
    text = f"1F1B executed with p=8: share of time in the bubble by m: {listed(shares, '{:.1%}')}"
    numbers = {f"share_at_m{m}": _derived(share) for m, share in shares.items()}
    return holds_if(strictly_decreasing(list(shares.values())), text, numbers)


def flops_per_iteration(results: Results) -> Judgement:
    """Whether the GEMMs of the operator inventory add up to the Appendix's counts and eq. 3, for Table 1's models."""

    def count(work: operators.Work) -> int:
        return sum(2 * M * N * K * batch for M, N, K, batch in work.gemms)

    worst, B = 0.0, 4
    for row in table_1():
        model = model_of(row.parameters)
        forward, backward = (count(of(model, B, 1)) for of in (operators.layer_forward, operators.layer_backward))
        layer = 24 * B * model.seq * model.hidden**2 + 4 * B * model.seq**2 * model.hidden
        logits = count(operators.logits_forward(model, B, 1)) + count(operators.logits_backward(model, B, 1))
        total = model.layers * (2 * forward + backward) + logits
        pairs = (
            (forward, layer),
            (backward, 2 * layer),
            (logits, formulas.logit_flops(model, B)),
            (total, formulas.flops_per_iteration(model, B)),
        )
        worst = max(worst, *(abs(ours / theirs - 1) for ours, theirs in pairs))
    text = f"GEMMs of every operator of Table 1's models, counted: largest difference from the formulas {worst:.1e}"
    return holds_if(worst < 1e-12, text, {"largest_difference": _derived(worst)})


def _accepted(make: Any) -> bool:
    try:
        make()
    except ValueError:
        return False
    return True


def pipeline_up_to_layers(results: Results) -> Judgement:
    """Whether a configuration may have as many stages as layers, and none more; for the 5.9B model."""
    model = model_of(published.model("fig_pipeline_vs_data"))
    most = max(p for p in range(1, 4 * model.layers + 1) if _accepted(lambda p=p: _pipeline(model, p)))
    text = f"of p = 1 to {4 * model.layers} for l = {model.layers} layers, the largest that can be configured is {most}"
    return holds_if(most == model.layers, text, {"largest_p": _derived(most, "count")})


def _pipeline(model: ModelConfig, p: int) -> TrainingConfig:
    return TrainingConfig(model, ParallelConfig(p=p, B=p))


def data_parallel_to_1536(results: Results) -> Judgement:
    """Whether a batch of 1536 sequences can use 1536 data-parallel GPUs and no more."""
    B = 1536
    most = max(d for d in range(1, 2 * B + 1) if _accepted(lambda d=d: ParallelConfig(d=d, B=B)))
    text = f"of d = 1 to {2 * B} for B = {B}, the largest that can be configured is {most}"
    return holds_if(most == B, text, {"largest_d": _derived(most, "count")})


def layers_of_devices(results: Results) -> Judgement:
    """The layers of devices 1 and 2 in the example, as the engine and the schedules place them."""
    layers, p, v = 16, 4, 2
    schedule = build("interleaved", p, p, v)
    placed = {
        rank + 1: [layer + 1 for chunk in chunk_layers(layers, schedule.placement, rank) for layer in chunk]
        for rank in range(p)
    }
    scheduled = {rank + 1: sorted({action.stage for action in actions}) for rank, actions in enumerate(schedule.ranks)}
    stages = {rank: [rank - 1, rank - 1 + p] for rank in placed}  # two layers each
    text = f"{layers} layers, p={p}, v={v}: " + "; ".join(
        f"device {rank}: {stages_held}" for rank, stages_held in placed.items()
    )
    fine = placed[1] == [1, 2, 9, 10] and placed[2] == [3, 4, 11, 12] and scheduled == stages
    return holds_if(fine, text)


def optimal_checkpoints(results: Results) -> Judgement:
    """Whether the formula's c gives less memory than any other, for many numbers of layers and ratios of the sizes."""
    worst = float("-inf")
    for layers in (1, 2, 4, 8, 16, 32):
        for ratio in (1.0, 5.0, 20.0, 34.0, 100.0):
            best = formulas.optimal_checkpoints(layers, 1.0, ratio)
            least = formulas.checkpoint_memory(best, layers, 1.0, ratio)
            others = (
                formulas.checkpoint_memory(best * k / 100, layers, 1.0, ratio) for k in range(10, 1000) if k != 100
            )
            worst = max(worst, least / min(others) - 1)
    text = f"memory at the formula's c over that at 0.1 to 10 times it, 30 cases: at most {worst:+.1e}"
    return holds_if(worst < 0, text, {"largest_excess": _derived(worst)})


def eq_4_approximates(results: Results) -> Judgement:
    """Eq. 4 against T/(Bs) iterations of F FLOPs, for the models it is used on."""
    models = {"175B": model_of(published.model(GPT_3)), "1T": model_of(table_1()[-1].parameters)}
    off = {
        name: formulas.training_time_approximate(formulas.parameters(model), 1.0, 1, 1.0)
        / formulas.training_time(model, 1, 1.0, 1, 1.0)
        - 1
        for name, model in models.items()
    }
    text = f"8TP/(nX) over the time by eq. 3: {listed(off, '{:+.1%}')}"
    numbers = {f"difference_for_{name.lower()}": _derived(value) for name, value in off.items()}
    return holds_if(max(map(abs, off.values())) <= APPROXIMATELY, text, numbers)
