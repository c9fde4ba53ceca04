"""Table 1: weak-scaling throughput of ten GPT models, 1.7 billion to a trillion parameters, 32 to 3072 GPUs."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import fsum

from ptdp_core.formulas import flops_per_iteration, logit_flops, parameters
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import NOTHING, Judgement, consistent_if, holds_if
from reproduce.experiment.parameters import ranks_of
from reproduce.experiment.results import Results, listed
from reproduce.experiment.sweep import Level, Sweep, level
from reproduce.papers.shared import efficiency, paper_models
from reproduce.papers.shared.paper_models import model_of, rounds_to

SMALLEST, LARGEST = 0, -1
COMMUNICATION = (q.TENSOR_TIME, "pipeline_communication_time", "data_parallel_time")
COMPUTE = ("forward_time", "recompute_time", "backward_time", "embedding_and_logits_time")
COLUMNS = {
    "model": "parameters", "heads": "a", "hidden": "h", "layers": "l", "t": "t", "p": "p", "d": "d", "gpus": "n",
    "B": "B", "b": "b", "v": "v",
}  # fmt: skip
RANK = (Level("", "rank", {}),)
PAPER_MODELS = [
    replace(row, parameters={**row.parameters, "gpus": ranks_of(row.parameters)})
    for row in paper_models.levels_of_table_1()
]
CPU_MODELS = (
    level("1 rank", gpus=1, layers=2, hidden=128, heads=4, B=2),
    level("2 ranks", gpus=2, t=2, layers=2, hidden=192, heads=6, B=4),
    level("4 ranks", gpus=4, t=2, p=2, layers=4, hidden=192, heads=6, B=8),
)
GPU_MODELS = (
    level("1 rank", gpus=1, layers=16, hidden=1536, heads=16, B=16),
    level("2 ranks", gpus=2, t=2, layers=16, hidden=2304, heads=24, B=32),
    level("4 ranks", gpus=4, t=4, layers=30, hidden=2304, heads=24, B=64),
)

ARTIFACT = Artifact(
    id="table_weak_scaling",
    label="Table 1",
    section="5.1",
    title="Weak-scaling throughput for GPT models from 1 billion to 1 trillion parameters",
    subject="Weak-scaling throughput",
    description=(
        "Throughput per GPU, share of the 312 teraFLOP/s peak and aggregate throughput of the ten models, each on "
        "the GPUs and with the configuration of its run. FLOP/s by the paper's count (eq. 3)."
    ),
    quantities=(q.THROUGHPUT, q.SHARE_OF_PEAK, q.AGGREGATE_THROUGHPUT, *q.USUAL[1:], q.TENSOR_TIME, q.GEMM_RATE),
    sweeps={
        "paper": Sweep(x=PAPER_MODELS, paper="table_weak_scaling"),
        "cpu": Sweep(series=RANK, x=CPU_MODELS),
        "gpus": Sweep(series=RANK, x=GPU_MODELS, b=4, seq=2048),
    },
    columns=COLUMNS,
    further=efficiency.kernel_metrics,
    notes=(
        "b, v and the kind of data parallelism are those of the authors' script; the 1.7, 3.6, 7.5 and 18.4 billion "
        "rows (p=1) overlap the gradient all-reduce with the last backward pass, the others do it after the flush.",
    ),
)


def _ends(values: Mapping[str, float]) -> tuple[float, float]:
    """The values of the smallest and of the largest model."""
    by_size = list(values.values())
    return by_size[SMALLEST], by_size[LARGEST]


def _rounds_to(results: Results, metric: q.Quantity, said: int, show: str, factor: float) -> Judgement:
    point = results.points[LARGEST]
    value = results.value(point.key, metric)
    shown = value / factor
    text = f"{point.label} on {point.parameters['gpus']} GPUs: {show.format(shown)}, {shown / said - 1:+.1%}"
    return holds_if(abs(shown - said) <= 0.5, text, results.numbers("FLOP/s", **{metric.name: value}))


@ARTIFACT.claim(
    f"{NOTHING}no simulation here can tell: its margin on Selene, 6.7% lower to 7.2% higher, is wider than "
    "half a petaFLOP/s either way, so that it cannot confirm 502 petaFLOP/s, and gemm_plateau and other "
    "numbers of the cluster were set with Table 1, so that a miss would not contradict it; that it is "
    "throughput times n is aggregate_is_the_product",
    "Abstract; so Sections 1 and 7",
    rule="rounding",
)
def aggregate_502_petaflops(results: Results) -> Judgement:
    r"""Our approach allows us to perform training iterations on a model with 1 trillion parameters at 502 petaFLOP/s on
    3072 GPUs (per-GPU throughput of 52\% of theoretical peak).
    """
    return _rounds_to(results, q.AGGREGATE_THROUGHPUT, 502, "{:.1f} petaFLOP/s", 1e15)


def _shares(results: Results, said: dict[int, float]) -> Judgement:
    values = {index: results.value(results.points[index].key, q.SHARE_OF_PEAK) for index in said}
    labels = {index: results.points[index].label for index in said}
    text = "share of peak: " + ", ".join(f"{labels[i]} {values[i]:.1%} (said {said[i]:.0%})" for i in said)
    numbers = results.numbers(share_of_peak={labels[i]: values[i] for i in said})
    return holds_if(all(abs(values[i] - said[i]) <= 0.005 for i in said), text, numbers)


@ARTIFACT.claim(
    f"{NOTHING}no simulation here can tell: its margin on Selene, 6.7% lower to 7.2% higher, is wider than "
    "half a point either way, so that it cannot confirm 52%, and gemm_plateau and other numbers of the "
    "cluster were set with Table 1, so that a miss would not contradict it; by the printed throughput it is "
    "shares_of_peak_52_and_44_in_the_paper; the 502 petaFLOP/s are aggregate_502_petaflops",
    "Abstract (the share of peak); so Section 1",
    sentence=aggregate_502_petaflops,
    rule="rounding",
)
def share_of_peak_52_percent(results: Results) -> Judgement:
    return _shares(results, {LARGEST: 0.52})


@ARTIFACT.claim(
    f"{NOTHING}no simulation here can tell: its margin on Selene, 6.7% lower to 7.2% higher, is wider than half a "
    "teraFLOP/s either way, so that it cannot confirm 163 teraFLOP/s, and gemm_plateau and other numbers of the "
    "cluster were set with Table 1, so that a miss would not contradict it; the scaling is close_to_linear",
    "Section 1 (the throughput)",
    rule="rounding",
)
def throughput_163_teraflops(results: Results) -> Judgement:
    r"""In our experiments, we demonstrate close to linear scaling to 3072 A100 GPUs, with an achieved end-to-end
    training throughput of 163 teraFLOP/s per GPU (including communication, data processing, and optimization), and an
    aggregate throughput of 502 petaFLOP/s, on a GPT model~\cite{gpt3} with a trillion parameters using mixed precision.
    """
    return _rounds_to(results, q.THROUGHPUT, 163, "{:.1f} teraFLOP/s per GPU", 1e12)


@ARTIFACT.claim(
    "'close to linear scaling to 3072 GPUs': in every row of Table 1 the simulated throughput per GPU is at "
    "least 90% of the smallest model's on 32 GPUs; more than linear, which Section 5.1 claims, is not held "
    "against it; 163 teraFLOP/s: throughput_163_teraflops, 502 petaFLOP/s: aggregate_502_petaflops",
    "Section 1 (the scaling)",
    sentence=throughput_163_teraflops,
    rule="nearly",
)
def close_to_linear(results: Results) -> Judgement:
    values = results.by_label(q.THROUGHPUT)
    smallest, largest = _ends(values)
    shares = {model: value / smallest for model, value in values.items()}
    text = f"throughput per GPU over the smallest model's: {listed(shares, '{:.0%}')}"
    numbers = results.numbers(share_of_linear=largest / smallest, smallest_share=min(shares.values()))
    return holds_if(min(shares.values()) >= 0.90, text, numbers)


@ARTIFACT.claim(
    "our reading of 'super-linear scaling to 3072 GPUs' as what is reached there: throughput per GPU of Table "
    "1's largest run (3072 GPUs) above the smallest's (32); between these ends it may fall, as it does in "
    "Table 1; the reasons are tested by larger_matrix_multiplications and communication_does_not_rise",
    papers_points="as printed in Table 1:",
    rule="ours",
)
def super_linear(results: Results) -> Judgement:
    """We see super-linear scaling to 3072 A100 GPUs (384 DGX A100 nodes), since GPU utilization improves as the models
    get larger (larger matrix multiplications) without significant increase in the communication time relative to
    computation time.
    """
    values = results.by_label(q.THROUGHPUT)
    text = f"teraFLOP/s per GPU by model: {listed(values, '{:.0f}', 1e12)}"
    smallest, largest = _ends(values)
    share = largest / smallest
    return holds_if(share > 1, text, results.numbers(largest_over_smallest=share))


@ARTIFACT.claim(
    "half of the reason, 'GPU utilization improves as the models get larger (larger matrix multiplications)', our "
    "reading, at the two ends of Table 1, 1.7B on 32 and 1008B on 3072 GPUs: FLOP/s inside the GEMMs of a transformer "
    "layer are higher for the larger; the other half, communication, is tested by communication_does_not_rise, the "
    "super-linear scaling by super_linear; that one is the cause of the other is not tested",
    "Section 5.1 (the reason)",
    sentence=super_linear,
    rule="ours",
)
def larger_matrix_multiplications(results: Results) -> Judgement:
    rates = results.by_label(q.GEMM_RATE)
    text = f"teraFLOP/s inside GEMMs by model: {listed(rates, '{:.0f}', 1e12)}"
    smallest, largest = _ends(rates)
    return holds_if(largest > smallest, text)


@ARTIFACT.claim(
    "half of the reason, 'without significant increase in the communication time relative to computation "
    "time', our reading, at the two ends of Table 1, 1.7B on 32 and 1008B on 3072 GPUs: exposed communication "
    "(tensor, pipeline, data) over the rest of the iteration is for the larger at most 2 percentage points "
    "above that for the smaller, 2% being what 'negligible' allows; the other half is tested by "
    "larger_matrix_multiplications, the scaling by super_linear",
    "Section 5.1 (the communication)",
    sentence=super_linear,
    rule="ours",
)
def communication_does_not_rise(results: Results) -> Judgement:
    shares = {}
    for point in results.points:
        spent, compute = (fsum(results.value(point.key, name) for name in names) for names in (COMMUNICATION, COMPUTE))
        tensor = results.value(point.key, q.TENSOR_TIME)  # inside the computation's times
        shares[point.label] = spent / (compute - tensor)
    first = next(p.label for p in results.points if p.parameters["t"] == published.gpus_per_node())
    smallest, largest = _ends(shares)
    text = (
        f"communication over computation by model: {listed(shares, '{:.0%}')}; from {first}, the first with t = 8, it "
        f"{'falls' if largest < shares[first] else 'rises'} to the largest"
    )
    return holds_if(largest - smallest <= 0.02, text, results.numbers(rise=largest - smallest))


@ARTIFACT.claim(
    f"{NOTHING}no simulation here can tell: its margin on Selene, 6.7% lower to 7.2% higher, is wider than "
    "half a point either way, so that it cannot confirm 52% and 44%, and gemm_plateau and other numbers of "
    "the cluster were set with Table 1, so that a miss would not contradict them; by the printed throughputs "
    "it is shares_of_peak_52_and_44_in_the_paper",
    papers_points="as printed in Table 1, throughput per GPU over the peak of 312 teraFLOP/s, of the largest and of "
    "the smallest run: both round to the share printed, 51.5 to 52.5% and 43.5 to 44.5%",
    rule="rounding",
)
def shares_of_peak_52_and_44(results: Results) -> Judgement:
    r"""We achieve 52\% of peak device throughput for the largest model, and 44\% of peak device throughput for the
    smallest model.
    """
    return _shares(results, {LARGEST: 0.52, SMALLEST: 0.44})


@ARTIFACT.claim(
    "'we use the interleaved schedule', of Table 1: every row with p > 1 has v > 1, in the script that the "
    "authors published, as the paper does not print v; 'with the scatter/gather optimization enabled' is an "
    "option of that script and not tested",
    fidelity="derived",
    rule="counted",
    by="counted",
)
def interleaved_everywhere(results: Results) -> Judgement:
    """In particular, we use the interleaved pipeline schedule with the scatter/gather optimization enabled."""
    pipelined = [point for point in results.points if point.parameters["p"] > 1]
    without = [point.label for point in pipelined if point.parameters["v"] == 1]
    text = (
        f"the authors' script interleaves {len(pipelined) - len(without)} of the {len(pipelined)} models that it "
        f"pipelines; it does not for {', '.join(without)}. Every row here is simulated as the script ran it"
    )
    return holds_if(not without, text)


@ARTIFACT.claim(
    "Table 1 as printed, our reading of 'also increase' as 'never decrease', since some rows have the B of "
    "the row before: neither B nor n falls from one row of the table to the next",
    fidelity="derived",
    rule="ours",
    by="paper",
)
def batch_and_gpus_grow(results: Results) -> Judgement:
    """As the model size increases, we also increase the batch size ($B$) and the number of GPUs ($n$)."""
    smaller = [
        f"{name} falls from {a.parameters[name]} ({a.label}) to {b.parameters[name]} ({b.label})"
        for name in ("B", "gpus")
        for a, b in pairwise(results.points)
        if b.parameters[name] < a.parameters[name]
    ]
    text = "; ".join(smaller) or "neither falls from one row to the next"
    return consistent_if(not smaller, text)


@ARTIFACT.claim(
    "throughput per GPU times n is the aggregate, in every row of the table, to the rounding of both numbers",
    "Section 5",
    fidelity="derived",
    rule="rounding",
    by="paper",
)
def aggregate_is_the_product(results: Results) -> Judgement:
    """Aggregate throughput can be computed by multiplying with the number of GPUs used."""
    wrong = []
    for point in results.points:
        gpus = point.parameters["gpus"]
        each, aggregate = (point.paper[metric.name] for metric in (q.THROUGHPUT, q.AGGREGATE_THROUGHPUT))
        slack = gpus * (each.quantum or 0) / 2 + (aggregate.quantum or 0) / 2
        if abs(each.value * gpus - aggregate.value) > slack:
            wrong.append(point.label)
    text = f"not for {', '.join(wrong)}" if wrong else f"in all {len(results.points)} rows, to rounding"
    return consistent_if(not wrong, text)


@ARTIFACT.claim(
    "our reading, that the ends of the range are models of Table 1: by eq. (2), the smallest has 1 billion parameters "
    "and the largest 1 trillion, each rounded to one digit (0.5 to 1.5), and every row has the size printed there, to "
    "its digits; throughput is tested by the other claims of the table",
    "Table 1, caption",
    fidelity="derived",
    rule="ours",
)
def one_billion_to_one_trillion(results: Results) -> Judgement:
    """Weak-scaling throughput for GPT models ranging from 1 billion to 1 trillion parameters."""
    counts = {point.label: parameters(model_of(point.parameters)) for point in results.points}
    wrong = [label for label, count in counts.items() if not rounds_to(f"{float(label.rstrip('B')):.1f}", count)]
    text = f"billions of parameters by eq. (2): {listed(counts, '{:.2f}', 1e9)}"
    smallest, largest = _ends(counts)
    ends = rounds_to("1", smallest) and rounds_to("1", largest / 1000)
    return consistent_if(not wrong and ends, text)


@ARTIFACT.claim(
    "our reading, that GEMMs are bound by compute and all other kernels by memory: as simulated, in every row "
    "of Table 1 GEMMs take more than half of the computing time of the layers (forward, recomputation, "
    "backward, without tensor all-reduces); that 'efficient kernel implementations' allowed it is not tested",
    "Section 1 (the kernels); so Section 6",
    rule="ours",
)
def mostly_compute_bound(results: Results) -> Judgement:
    """Achieving this throughput at scale required innovation and careful engineering along multiple axes: efficient
    kernel implementations that allowed most of the computation to be compute-bound as opposed to memory-bound, [...]
    """
    shares = {}
    for point in results.points:
        model, n = model_of(point.parameters), point.parameters["gpus"]
        flops = flops_per_iteration(model, point.parameters["B"]) - logit_flops(model, point.parameters["B"])
        layers, tensor = (
            fsum(results.value(point.key, name) for name in names) for names in (COMPUTE[:-1], (q.TENSOR_TIME,))
        )
        shares[point.label] = flops / n / results.value(point.key, q.GEMM_RATE) / (layers - tensor)
    least = min(shares.values())
    text = f"share of the layers' computing time in GEMMs, by model: {listed(shares, '{:.0%}')}"
    return holds_if(least > 0.5, text, results.numbers(smallest_share=least))


@ARTIFACT.claim(
    "our reading of 'dominant communication pattern', for Table 1's models alone, in bytes, counted: in every "
    "row more than half of what a GPU sends is sent in all-reduces (tensor, data, tied embedding) and not "
    "between stages; that the topology makes them efficient is not tested",
    "Section 5 (the pattern)",
    rule="ours",
    by="counted",
)
def all_reduce_dominant(results: Results) -> Judgement:
    """This topology allows efficient all-reduce communication (dominant communication pattern in deep learning
    training).
    """
    shares = {}
    for point in results.points:
        pipeline = results.value(point.key, "pipeline_traffic")
        reduced = fsum(results.value(point.key, f"{use}_traffic") for use in ("tensor", "data", "embedding"))
        shares[point.label] = reduced / (reduced + pipeline)
    least = min(shares.values())
    text = f"share of a GPU's bytes that it sends in all-reduces, by model: {listed(shares, '{:.0%}')}"
    return holds_if(least > 0.5, text, results.numbers(smallest_share=least))


@ARTIFACT.claim(
    f"{NOTHING}the configuration behind 36% is not in the paper; its own 52% are tested by "
    "shares_of_peak_52_and_44_in_the_paper",
    "Section 6",
)
def deepspeed_36_percent(results: Results) -> Judgement:
    r"""DeepSpeed~\cite{deepspeed3Dparallelism} combined pipeline parallelism with tensor and data parallelism to train
    models with up to a trillion parameters, but with lower throughput than what was shown in this paper (52\% vs. 36\%
    of peak) for a few reasons:
    """
    share = results.value(results.points[LARGEST].key, q.SHARE_OF_PEAK)
    text = f"the configuration behind 36% is not in the paper; ours behind 52% comes to {share:.1%}"
    return Judgement("not testable here", text, results.numbers(**{q.SHARE_OF_PEAK.name: share}))
