"""Table 1: weak-scaling throughput of ten GPT models, 1.7 billion to a trillion parameters, 32 to 3072 GPUs."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import fsum

from ptdp_core.formulas import flops_per_iteration, logit_flops, parameters
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, listed
from reproduce.experiment.sized import model_of, rounds_to
from reproduce.experiment.sweep import Sweep, ranks_of
from reproduce.experiment.told import told
from reproduce.papers.shared import efficiency, paper_models

SMALLEST, LARGEST = 0, -1
COMMUNICATION = (q.TENSOR_TIME, "pipeline_communication_time", "data_parallel_time")
COMPUTE = ("forward_time", "recompute_time", "backward_time", "embedding_and_logits_time")
PAPER_MODELS = [
    replace(row, parameters={**row.parameters, "gpus": ranks_of(row.parameters)})
    for row in paper_models.levels_of_table_1()
]

ARTIFACT = told(
    __name__, sweeps={"paper": Sweep(x=PAPER_MODELS, paper="table_weak_scaling")}, further=efficiency.kernel_metrics
)


def _ends(values: Mapping[str, float]) -> tuple[float, float]:
    """The values of the smallest and of the largest model."""
    by_size = list(values.values())
    return by_size[SMALLEST], by_size[LARGEST]


@ARTIFACT.judge
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


@ARTIFACT.judge
def interleaved_everywhere(results: Results) -> Judgement:
    pipelined = [point for point in results.points if point.parameters["p"] > 1]
    without = [point.label for point in pipelined if point.parameters["v"] == 1]
    text = (
        f"the authors' script interleaves {len(pipelined) - len(without)} of the {len(pipelined)} models that it "
        f"pipelines; it does not for {', '.join(without)}. Every row here is simulated as the script ran it"
    )
    return holds_if(not without, text)


@ARTIFACT.judge
def batch_and_gpus_grow(results: Results) -> Judgement:
    smaller = [
        f"{name} falls from {a.parameters[name]} ({a.label}) to {b.parameters[name]} ({b.label})"
        for name in ("B", "gpus")
        for a, b in pairwise(results.points)
        if b.parameters[name] < a.parameters[name]
    ]
    text = "; ".join(smaller) or "neither falls from one row to the next"
    return consistent_if(not smaller, text)


@ARTIFACT.judge
def aggregate_is_the_product(results: Results) -> Judgement:
    wrong = []
    for point in results.points:
        gpus = point.parameters["gpus"]
        each, aggregate = (point.paper[metric.name] for metric in (q.THROUGHPUT, q.AGGREGATE_THROUGHPUT))
        slack = gpus * (each.quantum or 0) / 2 + (aggregate.quantum or 0) / 2
        if abs(each.value * gpus - aggregate.value) > slack:
            wrong.append(point.label)
    text = f"not for {', '.join(wrong)}" if wrong else f"in all {len(results.points)} rows, to rounding"
    return consistent_if(not wrong, text)


@ARTIFACT.judge
def one_billion_to_one_trillion(results: Results) -> Judgement:
    counts = {point.label: parameters(model_of(point.parameters)) for point in results.points}
    wrong = [label for label, count in counts.items() if not rounds_to(f"{float(label.rstrip('B')):.1f}", count)]
    text = f"billions of parameters by eq. (2): {listed(counts, '{:.2f}', 1e9)}"
    smallest, largest = _ends(counts)
    ends = rounds_to("1", smallest) and rounds_to("1", largest / 1000)
    return consistent_if(not wrong and ends, text)


@ARTIFACT.judge
def mostly_compute_bound(results: Results) -> Judgement:
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
