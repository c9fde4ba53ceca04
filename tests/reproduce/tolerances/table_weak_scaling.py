"""Edges of the claims of Table 1."""

from reproduce.experiment.sized import model_of
from reproduce.papers.shared.paper_models import table_1
from tests.reproduce.tolerances.edges import INCONSISTENT, above, at, at_least, below, between, not_testable, over

MODULE = "reproduce.papers.sc21.table_weak_scaling"
COUNTS = "reproduce.papers.sc21.table_weak_scaling.parameters"
MODEL_OF = {row.label: model_of(row.parameters) for row in table_1()}
PRINTED = {model_of(row.parameters): float(row.label[:-1]) * 1e9 for row in table_1()}
SMALLEST, MIDDLE, LARGEST = "1.7B", "39.1B", "1008B"


def largest(otherwise=1.0):
    """x for the largest model, something else for the others."""
    return at(otherwise, label=LARGEST)


def count_of(label):
    """By x, a count of parameters: x for one model, what is printed for the others."""
    (judged,) = (model_of(row.parameters) for row in table_1() if row.label == label)
    return lambda x: lambda model: x if model == judged else PRINTED[model]


def exposed(point, rise):
    """Seconds of communication beside the tensor-parallel 1 s, with 1 s of computation: none for the smallest model."""
    return rise if point.label == LARGEST else float(point.label != SMALLEST)


COMPUTE = {
    "forward_time": 0.5,
    "recompute_time": 0.25,
    "backward_time": 1.0,
    "embedding_and_logits_time": 0.25,
    "tensor_communication_time": 1.0,
}
REDUCED = ("tensor_traffic", "data_traffic", "embedding_traffic")
RISE = "at most 2 percentage points above that for the smaller"
ROUNDING = 32 * 0.5e12 + 0.05e15  # of 32 GPUs' throughput, to 1 teraFLOP/s, and of the aggregate, to 0.1 petaFLOP/s

EDGES = {
    "aggregate_502_petaflops": between("501.5 to 502.5", 501.5e15, 502.5e15, aggregate_throughput=largest()),
    "share_of_peak_52_percent": between("51.5 to 52.5%", 0.515, 0.525, share_of_peak=largest()),
    "throughput_163_teraflops": between("162.5 to 163.5", 162.5e12, 163.5e12, throughput_per_gpu=largest()),
    "close_to_linear": at_least("at least 90% of the smallest model's", 0.90, throughput_per_gpu=largest()),
    "super_linear": over("largest run (3072 GPUs) above the smallest's", 1.0, throughput_per_gpu=largest()),
    "larger_matrix_multiplications": over("are higher for the larger", 1.0, gemm_throughput=largest()),
    "communication_does_not_rise": [
        below(RISE, 0.02, **COMPUTE, pipeline_communication_time=exposed, data_parallel_time=0),
        below(RISE, 0.02, **COMPUTE, pipeline_communication_time=0, data_parallel_time=exposed),
        # x: how much less computation the largest model has, in seconds
        below(
            RISE,
            1 - 1 / 1.02,
            **{**COMPUTE, "backward_time": lambda point, x: 1 - x if point.label == LARGEST else 1},
            pipeline_communication_time=0,
            data_parallel_time=0,
        ),
    ],
    "shares_of_peak_52_and_44": [
        *between("51.5 to 52.5%", 0.515, 0.525, share_of_peak=largest(otherwise=0.44)),
        *between("43.5 to 44.5%", 0.435, 0.445, share_of_peak=at(0.52, label=SMALLEST)),
    ],
    "interleaved_everywhere": above(
        "every row with p > 1 has v > 1",
        1.5,
        step=0.5,
        change=lambda point, x: {"v": int(x) if point.label == MIDDLE else 1 if point.p == 1 else 2},
    ),
    "batch_and_gpus_grow": [
        at_least(
            "neither B nor n falls from one row of the table to the next",
            1000,
            step=1,
            outside=INCONSISTENT,
            change=lambda point, x, name=name: {"B": 1, "gpus": 1} | {name: largest(1000)(point, x)},
        )
        for name in ("B", "gpus")
    ],
    "aggregate_is_the_product": between(
        "to the rounding of both numbers",
        32 * 100e12 - ROUNDING,
        32 * 100e12 + ROUNDING,
        tie=True,
        outside=INCONSISTENT,
        paper={
            "throughput_per_gpu": 100e12,
            "aggregate_throughput": at(lambda point: point.gpus * 100e12, label=SMALLEST),
        },
    ),
    "one_billion_to_one_trillion": [
        *between(
            "every row has the size printed there, to its digits",
            39.05e9,
            39.15e9,
            outside=INCONSISTENT,
            label=lambda point, x: "1.0B" if point.label == SMALLEST else point.label,
            patch={
                COUNTS: lambda x: lambda model: 1.0e9 if model == MODEL_OF[SMALLEST] else count_of(MIDDLE)(x)(model)
            },
        ),
        *(
            between(
                "each rounded to one digit (0.5 to 1.5)",
                low,
                high,
                step=low * 2e-9,
                outside=INCONSISTENT,
                label=lambda point, x, label=label: (
                    f"{x / 1e9:.1f}B" if point.label == label else "1.0B" if point.label == SMALLEST else point.label
                ),
                patch={
                    COUNTS: lambda x, label=label: (
                        lambda model: (
                            x if model == MODEL_OF[label] else 1.0e9 if model == MODEL_OF[SMALLEST] else PRINTED[model]
                        )
                    )
                },
            )
            for label, low, high in ((SMALLEST, 0.5e9, 1.5e9), (LARGEST, 0.5e12, 1.5e12))
        ),
    ],
    "deepspeed_36_percent": not_testable(share_of_peak=0.5),
    "mostly_compute_bound": [
        above(
            "GEMMs take more than half of the computing time of the layers",
            0.5,
            **{**COMPUTE, "backward_time": 1.25, "embedding_and_logits_time": 9.0},
            gemm_throughput=lambda point, x, label=label: 1 / point.gpus / (x if point.label == label else 0.9),
            patch={
                f"{MODULE}.flops_per_iteration": lambda x: lambda model, B: 1.0,
                f"{MODULE}.logit_flops": lambda x: lambda model, B: 0.0,
            },
        )
        for label in (SMALLEST, LARGEST)
    ],
    "all_reduce_dominant": [
        over(
            "more than half of what a GPU sends is sent in all-reduces (tensor, data, tied embedding)",
            1.0,
            pipeline_traffic=1.0,
            **dict.fromkeys(REDUCED, 0.0) | {use: at(2.0, label=LARGEST)},
        )
        for use in REDUCED
    ],
}
