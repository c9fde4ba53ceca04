"""Claims of the first paper that follow, or do not, from its own formulas and numbers ('derived').

Where an object of this project does what a formula counts (the schedules, the operator inventory, the checks of a
configuration), they are judged on that object.
"""

from collections.abc import Callable

from ptdp_core import formulas
from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import LayerRun, block, ends
from ptdp_core.layers.parts import Work
from ptdp_core.layout import chunk_layers, chunk_parameters
from ptdp_core.schedules import bubble_fraction, build
from ptdp_core.simulator.kernels import FP16_BYTES
from reproduce.experiment import published
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, argmax, falls, listed, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.papers.shared.paper_models import GPT_3, table_1
from reproduce.papers.shared.whole_paper import ARTIFACT

# Figures and tables whose rows have a pipeline.
PIPELINED = (
    *("fig_pipeline_weak_scaling", "fig_interleaved", "fig_tensor_vs_pipeline", "fig_pipeline_vs_data"),
    *("fig_microbatch", "fig_recomputation", "fig_scatter_gather", "table_weak_scaling"),
)
FLOPS_OF_AN_ELEMENT = 10  # more than a kernel that is no GEMM has for an element that it reads or writes


def _flushed() -> dict[str, float]:
    """(p-1)/(vm) over the whole time, in every configuration of the paper's figures and Table 1 that has a pipeline."""
    bubbles = {}
    for row in published.rows("fig_bubble"):
        bubble = formulas.bubble_fraction_data_parallel(row["n"], row["d"], row["b_prime"])
        bubbles["Figure 6, n={n}, b'={b_prime}, d={d}".format(**row)] = bubble
    for id in PIPELINED:
        entry, shared = published.artifact(id), published.artifact(id).get("configuration", {})
        for row in published.rows(id):
            run = {"t": 1, "v": 1, "b": 1, **shared, **row}
            d = run.get("d", run["gpus"] // (run["p"] * run["t"]))
            m = run["B"] // (d * run["b"])
            label = f"{entry['paper']}, p={run['p']}, d={d}, v={run['v']}, m={m}"
            bubbles[label] = formulas.bubble_fraction(run["p"], m) / run["v"]
    return {label: bubble / (1 + bubble) for label, bubble in bubbles.items()}


@ARTIFACT.judge
def half_of_time_flushing(results: Results) -> Judgement:
    shares = _flushed()
    worst, over = argmax(shares), sum(share > 0.5 for share in shares.values())
    text = (
        f"largest share of the iteration: {shares[worst]:.1%} ({worst}); above 50% in {over} of {len(shares)} "
        "configurations"
    )
    return consistent_if(0.495 <= shares[worst] <= 0.505, text, numbers_of("derived", largest_share=shares[worst]))


@ARTIFACT.judge
def more_microbatches_less_flush(results: Results) -> Judgement:
    bubbles = {m: float(bubble_fraction(build("1f1b", 8, m), 1, 2)) for m in (8, 16, 32, 64, 128)}
    shares = {m: bubble / (1 + bubble) for m, bubble in bubbles.items()}
    text = f"1F1B executed with p=8: share of time in the bubble by m: {listed(shares, '{:.1%}')}"
    return holds_if(falls(shares), text, numbers_of("derived", share_at_m=shares))


@ARTIFACT.judge
def layers_of_devices(results: Results) -> Judgement:
    layers, p, v = 16, 4, 2
    schedule = build("interleaved", p, p, v)
    placed = {
        rank + 1: [layer + 1 for chunk in chunk_layers(layers, schedule.placement, rank) for layer in chunk]
        for rank in range(p)
    }
    scheduled = {rank + 1: sorted({action.stage for action in actions}) for rank, actions in enumerate(schedule.ranks)}
    stages = {rank: [rank - 1, rank - 1 + p] for rank in placed}  # two layers each
    text = f"{layers} layers, p={p}, v={v}: " + "; ".join(f"device {rank}: {held}" for rank, held in placed.items())
    return holds_if(placed[1] == [1, 2, 9, 10] and placed[2] == [3, 4, 11, 12] and scheduled == stages, text)


@ARTIFACT.judge
def optimal_checkpoints(results: Results) -> Judgement:
    worst = float("-inf")
    for layers in (1, 2, 4, 8, 16, 32):
        for ratio in (1.0, 5.0, 20.0, 34.0, 100.0):
            best = formulas.optimal_kept_inputs(layers, 1.0, ratio)
            least = formulas.recomputation_memory(best, layers, 1.0, ratio)
            times = (0.9999, 1.0001, *(k / 100 for k in range(10, 1001) if k != 100))
            worst = max(
                worst, least / min(formulas.recomputation_memory(best * k, layers, 1.0, ratio) for k in times) - 1
            )
    text = f"memory at the formula's c over that at 0.1 to 10 times it, 30 cases: at most {worst:+.1e}"
    return holds_if(worst < 0, text, numbers_of("derived", largest_excess=worst))


@ARTIFACT.judge
def eq_4_approximates(results: Results) -> Judgement:
    models = {"175B": model_of(published.model(GPT_3)), "1T": model_of(table_1()[-1].parameters)}
    off = {
        name: formulas.training_time_approximate(formulas.parameters(model), 1.0, 1, 1.0)
        / formulas.training_time(model, 1, 1.0, 1, 1.0)
        - 1
        for name, model in models.items()
    }
    text = f"8TP/(nX) over the time by eq. 3: {listed(off, '{:+.1%}')}"
    return holds_if(max(map(abs, off.values())) <= 0.10, text, numbers_of("derived", difference_for=off))


@ARTIFACT.judge
def flops_per_iteration(results: Results) -> Judgement:

    def count(work: Work) -> int:
        return sum(2 * M * N * K * batch for M, N, K, batch in work.gemms)

    worst, B = 0.0, 4
    for row in table_1():
        model = model_of(row.parameters)
        own, (_, last) = block(model, LayerRun(B), model.usual_kind), ends(model, LayerRun(B))
        forward, backward = count(own.forward), count(own.backward)
        layer = 24 * B * model.seq * model.hidden**2 + 4 * B * model.seq**2 * model.hidden
        logits = count(last.forward) + count(last.backward)
        total = model.layers * (2 * forward + backward) + logits
        pairs = (
            (forward, layer),
            (backward, 2 * layer),
            (logits, formulas.logit_flops(model, B)),
            (total, formulas.flops_per_iteration(model, B)),
        )
        worst = max(worst, *(abs(ours / theirs - 1) for ours, theirs in pairs))
    text = f"GEMMs of every operator of Table 1's models, counted: largest difference from the formulas {worst:.1e}"
    return holds_if(worst <= 1e-9, text, numbers_of("derived", largest_difference=worst))


def _largest_accepted(configure: Callable[[int], object], limit: int) -> int:
    """The largest of the sizes 1 to `limit` that can be configured."""
    accepted = []
    for size in range(1, limit + 1):
        try:
            configure(size)
        except ConfigurationError:
            continue
        accepted.append(size)
    return max(accepted)


@ARTIFACT.judge
def data_parallel_to_1536(results: Results) -> Judgement:
    B = 1536
    most = _largest_accepted(lambda d: ParallelConfig(d=d, B=B), 2 * B)
    text = f"of d = 1 to {2 * B} for B = {B}, the largest that can be configured is {most}"
    return holds_if(most == B, text, numbers_of("derived", "count", largest_d=most))


@ARTIFACT.judge
def pipeline_up_to_layers(results: Results) -> Judgement:
    model = model_of(published.model("fig_pipeline_vs_data"))
    most = _largest_accepted(lambda p: TrainingConfig(model, ParallelConfig(p=p, B=p)), 4 * model.layers)
    text = f"of p = 1 to {4 * model.layers} for l = {model.layers} layers, the largest that can be configured is {most}"
    return holds_if(most == model.layers, text, numbers_of("derived", "count", largest_p=most))


@ARTIFACT.judge
def mostly_gemms(results: Results) -> Judgement:
    shares = {label: gemms / (gemms + others) for label, (gemms, others) in _flops().items()}
    least = argmax({label: -share for label, share in shares.items()})
    text = f"share of the FLOPs in GEMMs: at least {shares[least]:.1%} ({least})"
    return holds_if(shares[least] > 0.5, text, numbers_of("derived", smallest_share=shares[least]))


@ARTIFACT.judge
def eq_3_is_a_lower_bound(results: Results) -> Judgement:
    ratios = {}
    for row in table_1():
        counted = formulas.flops_per_iteration(model_of(row.parameters), row.parameters["b"])
        ratios[row.label] = counted / sum(_flops()[row.label])
    text = f"eq. (3) over the count with other kernels, by model: {listed(ratios, '{:.3f}')}"
    numbers = numbers_of("derived", least=min(ratios.values()), most=max(ratios.values()))
    return holds_if(min(ratios.values()) >= 0.9 and max(ratios.values()) <= 1, text, numbers)


def _flops() -> dict[str, tuple[float, float]]:
    """FLOPs of a microbatch of Table 1's models, in one replica: of GEMMs, and of all other kernels at most."""
    flops = {}
    for row in table_1():
        model, b = model_of(row.parameters), row.parameters["b"]
        own, both = block(model, LayerRun(b), model.usual_kind), ends(model, LayerRun(b))
        works = [own.forward] * 2 * model.layers + [own.backward] * model.layers
        works += [work for end in both for work in (end.forward, end.backward)]
        gemms = sum(2 * M * N * K * batch for work in works for M, N, K, batch in work.gemms)
        elements = sum(work.traffic_bytes for work in works) / FP16_BYTES
        flops[row.label] = float(gemms), FLOPS_OF_AN_ELEMENT * elements
    return flops


@ARTIFACT.judge
def parameters_by_eq_2(results: Results) -> Judgement:
    beyond, worst = {}, 0.0
    for row in table_1():
        model = model_of(row.parameters)
        layers, h = model.layers, model.hidden
        by_eq_2 = 12 * layers * h**2 + 13 * layers * h + (model.vocab + model.seq) * h
        counted = sum(parameter.elements for parameter in chunk_parameters(model, range(layers), 1))
        beyond[row.label] = (counted - by_eq_2) / h
        worst = max(worst, abs(counted / by_eq_2 - 1))
    text = f"parameters beyond eq. (2), in h: {listed(beyond, '{:g}')}; at most {worst:.5%}"
    return holds_if(set(beyond.values()) == {2}, text, numbers_of("derived", largest_difference=worst))
