"""The claims of the paper that belong to no one figure or table: takeaways, introduction, formulas, related work.

It draws nothing. The takeaways are judged by simulation. The others follow, or do not, from the paper's own formulas
and numbers ('derived'); where an object of this project does what a formula counts (the schedules, the operator
inventory, the checks of a configuration), they are judged on that object. The configurations are in
`shared.paper_points`.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from ptdp_core import formulas
from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layout import chunk_layers
from ptdp_core.schedules import bubble_fraction, build
from ptdp_core.simulator import operators
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax, falls, listed, numbers_of
from reproduce.experiment.sweep import Sweep
from reproduce.papers.shared import paper_points
from reproduce.papers.shared.models import GPT_3, model_of, table_1

ARTIFACT = Artifact(
    id="paper_claims",
    label="The paper as a whole",
    section="1 to 6",
    title="Takeaways, and sentences that belong to no one figure",
    description=(
        "Claims of the abstract, the introduction, the analysis and the related work that no figure or table judges, "
        "and the configurations they are judged on."
    ),
    quantities=(q.THROUGHPUT,),
    sweeps={"paper": Sweep(paper_points.points)},
    columns={"p": "p", "t": "t", "d": "d", "b": "b", "B": "B"},
    notes=(),
)


Speeds = list[tuple[Mapping[str, Any], float]]  # of points: their parameters and throughput


def _speeds(results: Results, series: str) -> Speeds:
    """The points of a series that fit in memory. Raises `MissingResultError` if one failed, or if none fits."""
    speeds = [(p.parameters, results.value(p.key, q.THROUGHPUT)) for p in results.of(series) if p.status != "oom"]
    if not speeds:
        raise MissingResultError(f"series {series!r} has no point that fits in memory")
    return speeds


def _by(parameter: str, speeds: Speeds) -> dict[int, Speeds]:
    """The points by the values of a parameter, in order."""
    values = sorted({parameters[parameter] for parameters, _ in speeds})
    return {value: [point for point in speeds if point[0][parameter] == value] for value in values}


@ARTIFACT.claim("on Figure 13's configurations (p*t = 64), t = g = 8 is the fastest at both batch sizes", "Section 3.2")
def takeaway_1(results: Results) -> Judgement:
    """Takeaway #1: When considering different forms of model parallelism, tensor model parallelism should generally be
    used up to degree $g$ when using $g$-GPU servers, and then pipeline model parallelism can be used to scale up to
    larger models across servers.
    """
    batches = _by("B", _speeds(results, paper_points.TENSOR_VS_PIPELINE))
    speeds = {B: {parameters["t"]: speed for parameters, speed in points} for B, points in batches.items()}
    best = {B: argmax(by_t) for B, by_t in speeds.items()}
    text = "; ".join(
        f"B={B}: fastest with t={best[B]}; teraFLOP/s by t: {listed(by_t, '{:.0f}', 1e12)}"
        for B, by_t in speeds.items()
    )
    return holds_if(set(best.values()) == {published.gpus_per_node()}, text, results.numbers("count", best_t_at_b=best))


@ARTIFACT.claim(
    "over every legal (p, t, d) of the 5.9B model on 64 GPUs that fits, no M is more than 1% faster than the "
    "smallest, at each batch size",
    "Section 3.3.2",
)
def takeaway_2(results: Results) -> Judgement:
    r"""Takeaway #2: When using data and model parallelism, a total model-parallel size of $M = t \cdot p$ should be
    used so that the model's parameters and intermediate metadata fit in GPU memory; data parallelism can be used to
    scale up training to more GPUs.
    """
    texts, numbers, holds = [], results.numbers(), True
    for B, points in _by("B", _speeds(results, paper_points.MODEL_PARALLEL)).items():
        best: dict[int, float] = {}
        for parameters, speed in points:
            size = parameters["p"] * parameters["t"]
            best[size] = max(speed, best.get(size, 0.0))
        best, smallest = dict(sorted(best.items())), min(best)
        gap = max(best.values()) / best[smallest] - 1
        holds = holds and gap <= 0.01
        shown = listed(best, "{:.0f}", 1e12)
        texts.append(f"B={B}: smallest that fits M={smallest}; best teraFLOP/s by M: {shown}")
        numbers |= results.numbers("count", smallest_m_at_b={B: smallest})
        numbers |= results.numbers(faster_than_smallest_at_b={B: gap})
    return holds_if(holds, "; ".join(texts), numbers)


def _best_b(parameter: str, speeds: Speeds) -> dict[int, int]:
    """The fastest b for each value of a parameter."""
    return {value: max(points, key=itemgetter(1))[0]["b"] for value, points in _by(parameter, speeds).items()}


@ARTIFACT.claim(
    "around Figure 16's configurations (either batch size) the best b differs with the model, p, d and B", "Section 3.4"
)
def takeaway_3(results: Results) -> Judgement:
    """Takeaway #3: The optimal microbatch size $b$ depends on the throughput and memory footprint characteristics of
    the model, as well as the pipeline depth $p$, data-parallel size $d$, and batch size $B$.
    """
    by_batch = _best_b("B", _speeds(results, paper_points.BY_B))
    texts = [f"by B {listed(by_batch, '{:.0f}')}"]
    different = {"batch_size": len(set(by_batch.values()))}
    families = (
        ("model", "h", "hidden", paper_points.BY_MODEL),
        ("p", "p", "p", paper_points.BY_P),
        ("d", "d", "d", paper_points.BY_D),
    )
    for name, letter, parameter, series in families:
        batches = _by("B", _speeds(results, series))
        best = {B: _best_b(parameter, points) for B, points in batches.items()}
        texts += [f"by {letter} at B={B} {listed(by_value, '{:.0f}')}" for B, by_value in best.items()]
        different[name] = max(len(set(by_value.values())) for by_value in best.values())
    text = "best b around the 91B model at (t, p, d) = (8, 8, 1): " + "; ".join(texts)
    return holds_if(min(different.values()) > 1, text, results.numbers("count", different_optima_by=different))


@ARTIFACT.claim(
    "over Figure 6's configurations the bubble takes at most 50% of an iteration, at least 45% of one",
    "Section 1",
    fidelity="derived",
)
def half_of_time_flushing(results: Results) -> Judgement:
    r"""As much as 50\% of time can be spent flushing the pipeline depending on the number of microbatches injected into
    the pipeline.
    """
    shares = {}
    for row in published.rows("fig_bubble"):
        bubble = formulas.bubble_fraction_data_parallel(row["n"], row["d"], row["b_prime"])
        shares[f"n={row['n']}, b'={row['b_prime']}, d={row['d']}"] = bubble / (1 + bubble)
    worst = argmax(shares)
    text = f"bubble over the whole iteration, largest of Figure 6's configurations: {shares[worst]:.1%} at {worst}"
    return holds_if(0.45 <= shares[worst] <= 0.5, text, numbers_of("derived", largest_share=shares[worst]))


@ARTIFACT.claim("the executed bubble's share of time falls from each m to the next", "Section 1", fidelity="derived")
def more_microbatches_less_flush(results: Results) -> Judgement:
    """The larger the ratio of number of microbatches to the pipeline size, the smaller the time spent in the pipeline
    flush.
    """
    bubbles = {m: float(bubble_fraction(build("1f1b", 8, m), 1, 2)) for m in (8, 16, 32, 64, 128)}
    shares = {m: bubble / (1 + bubble) for m, bubble in bubbles.items()}
    text = f"1F1B executed with p=8: share of time in the bubble by m: {listed(shares, '{:.1%}')}"
    return holds_if(falls(shares), text, numbers_of("derived", share_at_m=shares))


@ARTIFACT.claim(
    "exactly, by the layout of layers and by the stages that the interleaved schedule runs",
    "Section 2.2.2",
    fidelity="derived",
)
def layers_of_devices(results: Results) -> Judgement:
    """we could have each device perform computation for two model chunks (each with 2 layers), i.e., device 1 has
    layers $1,2,9,10$; device 2 has layers $3,4,11,12$; and so on
    """
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


@ARTIFACT.claim(
    "less memory than at 0.1 to 10 times that c, for 1 to 32 layers and ratios of 1 to 100",
    "Section 3.5",
    fidelity="derived",
)
def optimal_checkpoints(results: Results) -> Judgement:
    r"""The minimum value of this function is obtained when $c = \sqrt{l \cdot \left(A^\text{intermediate} /
    A^\text{input}\right)}$.
    """
    worst = float("-inf")
    for layers in (1, 2, 4, 8, 16, 32):
        for ratio in (1.0, 5.0, 20.0, 34.0, 100.0):
            best = formulas.optimal_kept_inputs(layers, 1.0, ratio)
            least = formulas.recomputation_memory(best, layers, 1.0, ratio)
            others = (
                formulas.recomputation_memory(best * k / 100, layers, 1.0, ratio) for k in range(10, 1001) if k != 100
            )
            worst = max(worst, least / min(others) - 1)
    text = f"memory at the formula's c over that at 0.1 to 10 times it, 30 cases: at most {worst:+.1e}"
    return holds_if(worst < 0, text, numbers_of("derived", largest_excess=worst))


@ARTIFACT.claim(
    "within 5% of the time by eq. 3, for GPT-3 and the trillion-parameter model",
    "Section 5.1, eq. 4",
    fidelity="derived",
)
def eq_4_approximates(results: Results) -> Judgement:
    r"""End-to-end training time $\approx \dfrac{8TP}{nX}$."""
    models = {"175B": model_of(published.model(GPT_3)), "1T": model_of(table_1()[-1].parameters)}
    off = {
        name: formulas.training_time_approximate(formulas.parameters(model), 1.0, 1, 1.0)
        / formulas.training_time(model, 1, 1.0, 1, 1.0)
        - 1
        for name, model in models.items()
    }
    text = f"8TP/(nX) over the time by eq. 3: {listed(off, '{:+.1%}')}"
    return holds_if(max(map(abs, off.values())) <= 0.05, text, numbers_of("derived", difference_for=off))


@ARTIFACT.claim(
    "the GEMMs of the operator inventory, counted for Table 1's models, to 1e-12", "Appendix; eq. 3", fidelity="derived"
)
def flops_per_iteration(results: Results) -> Judgement:
    r"""Thus, for a transformer model with $l$ transformer layers, the total number of floating-point operations is:
    $$96Bslh^2\left(1 + \dfrac{s}{6h} + \dfrac{V}{16lh}\right).$$
    """

    def count(work: operators.Work) -> int:
        return sum(2 * M * N * K * batch for M, N, K, batch in work.gemms)

    worst, B = 0.0, 4
    for row in table_1():
        model = model_of(row.parameters)
        forward, backward = (
            count(work_of(model, B, 1)) for work_of in (operators.layer_forward, operators.layer_backward)
        )
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
    return holds_if(worst < 1e-12, text, numbers_of("derived", largest_difference=worst))


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


@ARTIFACT.claim("exactly: the largest d that can be configured", "Section 5.4.3", fidelity="derived")
def data_parallel_to_1536(results: Results) -> Judgement:
    """GPT-3 was trained to convergence with a batch size of $1536$. Data parallelism thus supports parallelization to
    only $1536$ GPUs
    """
    B = 1536
    most = _largest_accepted(lambda d: ParallelConfig(d=d, B=B), 2 * B)
    text = f"of d = 1 to {2 * B} for B = {B}, the largest that can be configured is {most}"
    return holds_if(most == B, text, numbers_of("derived", "count", largest_d=most))


@ARTIFACT.claim("exactly: the largest p that can be configured", "Section 6", fidelity="derived")
def pipeline_up_to_layers(results: Results) -> Judgement:
    """pipeline parallelism in isolation can still only scale to a number of devices equal to the number of layers in
    the model
    """
    model = model_of(published.model("fig_pipeline_vs_data"))
    most = _largest_accepted(lambda p: TrainingConfig(model, ParallelConfig(p=p, B=p)), 4 * model.layers)
    text = f"of p = 1 to {4 * model.layers} for l = {model.layers} layers, the largest that can be configured is {most}"
    return holds_if(most == model.layers, text, numbers_of("derived", "count", largest_p=most))
