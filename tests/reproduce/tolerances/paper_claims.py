"""Edges of the claims that belong to no one figure."""

from types import SimpleNamespace

from ptdp_core import formulas
from ptdp_core.errors import ConfigurationError
from reproduce.papers.shared import paper_formulas, paper_points
from reproduce.papers.shared.paper_models import table_1
from tests.reproduce.tolerances.edges import (
    INCONSISTENT,
    above,
    at,
    at_most,
    between,
    only,
    over,
    switch,
    under,
    within,
)

MODULE = "reproduce.papers.shared.paper_formulas"
FORMULAS = "ptdp_core.formulas"
TAKEAWAY_1, TAKEAWAY_2 = "takeaway 1: t against p", "takeaway 2: (p, t, d)"
# A point of each family whose best microbatch size is not the others', 1.
DEPENDS = {
    "the model": lambda point: point.series.endswith("by model") and (point.hidden, point.B) == (6144, 128),
    "p": lambda point: point.series.endswith("by p") and (point.p, point.B) == (16, 512),
    "d": lambda point: point.series.endswith("by d") and (point.d, point.B) == (4, 128),
    "B": lambda point: point.series.endswith("by B") and point.B == 2048,
}
MICROBATCHES = (8, 16, 32, 64, 128)
flops, layers_of, build = formulas.flops_per_iteration, paper_formulas.chunk_layers, paper_formulas.build


def in_series(series, value):
    """A metric of one series' points only."""
    return lambda point, x: value(point, x) if point.series == series else None


def fastest(B, other):
    """x at t = 8 and a batch size, 1 at another t, 0 elsewhere."""
    return lambda point, x: (x if point.B == B else 2.0) if point.t == 8 else float(point.t == other)


def best_microbatch(judged):
    """Throughput 1 at b = 1; at b = 2 of the points that depend on something 2, but x where that is `judged`."""

    def value(point, x):
        if not point.series.startswith("takeaway 3"):
            return None
        if point.b != 2:
            return float(point.b == 1)
        return next((x if name == judged else 2.0 for name, depends in DEPENDS.items() if depends(point)), 0.0)

    return value


def bubbles(judged):
    """By x, executed bubbles that halve with each doubling of m, but x at one m."""
    return lambda x: lambda schedule, forward, backward: x if schedule.m == judged else 8 / schedule.m


def layers_with(x):
    """The layout of layers, with x as device 2's last layer."""

    def chunk_layers(layers, placement, rank):
        chunks = [list(chunk) for chunk in layers_of(layers, placement, rank)]
        if rank == 1:
            chunks[-1][-1] = x - 1
        return chunks

    return chunk_layers


def schedule_with(x):
    """The interleaved schedule, with x as the last device's last stage."""

    def interleaved(name, p, m, v):
        schedule = build(name, p, m, v)
        *others, last = schedule.ranks
        last = [SimpleNamespace(stage=x if action.stage == p * v - 1 else action.stage) for action in last]
        return SimpleNamespace(placement=schedule.placement, ranks=(*others, last))

    return interleaved


def memory(rival):
    """By x, memory x at the formula's c, which is 100; 1 at a rival (c, layers, ratio), more elsewhere."""
    return lambda x: (
        lambda c, layers, kept, intermediate: (
            x if c == 100 else 1.0 if (c, layers, intermediate / kept) == rival else 9.0
        )
    )


def approximation(trillion):
    """By x, a time by eq. (4): x for the larger model or for the smaller, else 1."""
    return lambda x: lambda P, tokens, n, rate: x if (P > 5e11) == trillion else 1.0


def up_to(x):
    """Refuses more than x data-parallel GPUs."""

    def configuration(d, B):
        if d > x:
            raise ConfigurationError(f"d={d}")

    return configuration


def stages_up_to(x):
    """Refuses more than x stages."""

    def configuration(model, parallel):
        if parallel.p > x:
            raise ConfigurationError(f"p={parallel.p}")

    return configuration


def plotted(x):
    """Figures 14 and 15 with 100 teraFLOP/s at p = 2, less at t = 2, and x at p = 8."""
    figures = {"fig_pipeline_vs_data": {"p": 8}, "fig_tensor_vs_data": {"t": 8}}
    best, other = {"fig_pipeline_vs_data": (100.0, x), "fig_tensor_vs_data": (99.0, 50.0)}, {"B": 128}

    def rows(id):
        (name,) = figures[id]
        return [
            {name: size, **other, "throughput_per_gpu": speed} for size, speed in zip((2, 8), best[id], strict=True)
        ]

    return rows


def partitioned(judged):
    """1 at t = 8, x at one other t, less at the third."""
    return lambda point, x: 1.0 if point.t == 8 else x if point.t == judged else 0.5


def parameters_beyond(x):
    """Parameters of a model: those of eq. (2), and 2h, but xh for the largest of Table 1."""

    def counted(model, layers, t):
        by_eq_2 = 12 * model.layers * model.hidden**2 + (13 * model.layers + model.vocab + model.seq) * model.hidden
        return [SimpleNamespace(elements=by_eq_2 + (x if model.layers == 128 else 2) * model.hidden)]

    return counted


EDGES = {
    "takeaway_1": [
        above(
            "t = g = 8 is the fastest at both batch sizes", 1.0, throughput_per_gpu=in_series(TAKEAWAY_1, fastest(B, t))
        )
        for B in (32, 128)
        for t in (2, 4, 16, 32)
    ],
    "takeaway_2": [
        at_most(
            "no M is faster than the smallest, each M with its fastest (p, t), at b = 1 and each batch size",
            1.0,
            out=lambda point, x: point.p * point.t == 1,
            throughput_per_gpu=in_series(
                TAKEAWAY_2, lambda point, x, B=B, M=M: x if (point.B, point.p * point.t) == (B, M) else 1.0
            ),
        )
        for B in (32, 128, 512)
        for M in (4, 64)
    ],
    "takeaway_2_in_the_paper": at_most(
        "no M = t p is faster than M = 2, the smallest, by more than the rounding of both",
        101.0,
        outside=INCONSISTENT,
        patch={"reproduce.experiment.published.rows": plotted},
    ),
    "takeaway_3": [
        above("at least two different b are the best over the models", 1.0, throughput_per_gpu=best_microbatch(judged))
        for judged in DEPENDS
    ],
    "half_of_time_flushing": [
        between(
            "is 49.5% to 50.5%",
            0.495,
            0.505,
            outside=INCONSISTENT,
            patch={
                f"{FORMULAS}.bubble_fraction_data_parallel": lambda x, on=figure_6: lambda n, d, b: on * x / (1 - x),
                f"{FORMULAS}.bubble_fraction": lambda x, on=others: lambda p, m: on * ((p, m) == (16, 1)) * x / (1 - x),
            },
        )
        for figure_6, others in ((True, False), (False, True))
    ],
    "more_microbatches_less_flush": [
        under("falls from each m", 16 / m, patch={f"{MODULE}.bubble_fraction": bubbles(m)}) for m in MICROBATCHES[1:]
    ],
    "layers_of_devices": [
        only("exactly those named, by the layout of layers", 12, step=1, patch={f"{MODULE}.chunk_layers": layers_with}),
        only("by the stages that the interleaved schedule runs", 7, step=1, patch={f"{MODULE}.build": schedule_with}),
    ],
    "optimal_checkpoints": [
        under(
            "is less at that c than at 0.1 to 10 times that c",
            1.0,
            patch={
                f"{FORMULAS}.optimal_kept_inputs": lambda x: lambda layers, kept, intermediate: 100.0,
                f"{FORMULAS}.recomputation_memory": memory(rival),
            },
        )
        for rival in ((10, 1, 1), (1000, 32, 100))
    ],
    "eq_4_approximates": [
        between(
            "within 10% of the time by eq. (3), for GPT-3 and the trillion-parameter model",
            0.9,
            1.1,
            patch={
                f"{FORMULAS}.training_time": lambda x: lambda model, B, tokens, n, rate: 1.0,
                f"{FORMULAS}.training_time_approximate": approximation(trillion),
            },
        )
        for trillion in (False, True)
    ],
    "flops_per_iteration": within(
        "counted, are those of the formula",
        0.0,
        1e-9,
        step=5e-15,
        patch={f"{FORMULAS}.flops_per_iteration": lambda x: lambda model, B: flops(model, B) * (1 + x)},
    ),
    "data_parallel_to_1536": only(
        "the largest d that can be configured", 1536, step=1, patch={f"{MODULE}.ParallelConfig": up_to}
    ),
    "pipeline_up_to_layers": only(
        "the largest p that can be configured", 32, step=1, patch={f"{MODULE}.TrainingConfig": stages_up_to}
    ),
    "data_parallel_scale_out": [
        under(
            "FLOP/s inside the GEMMs are lower",
            1.0,
            gemm_throughput=in_series(paper_points.DATA_PARALLEL, at(1.0, d=512)),
            data_parallel_time=in_series(paper_points.DATA_PARALLEL, lambda point, x: 0.9 if point.d == 512 else 0.1),
            iteration_time=1.0,
        ),
        over(
            "the exposed gradient all-reduce takes a larger share of the iteration, by any amount",
            0.1,
            gemm_throughput=in_series(paper_points.DATA_PARALLEL, lambda point, x: 1 / point.d),
            data_parallel_time=in_series(paper_points.DATA_PARALLEL, at(0.1, d=512)),
            iteration_time=1.0,
        ),
    ],
    "pipeline_for_larger_models": [
        switch(
            "none of Table 1's models with p > 1 fits one server",
            out=lambda point, x, label=label: point.series == paper_points.IN_A_SERVER and (x or point.label != label),
        )
        for label in ("39.1B", "1008B")
    ],
    "slower_links_hinder": [
        under(
            "has lower throughput with each than as it ran",
            1.0,
            throughput_per_gpu=in_series(paper_points.PARTITIONINGS, lambda point, x: 1.0 if point.t == 8 else 0.5),
            throughput_with_half_the_bandwidth=in_series(paper_points.PARTITIONINGS, at(2.0, t=8)),
        ),
        *(
            under(
                "twice and four times the tensor-parallel size",
                1.0,
                throughput_per_gpu=in_series(paper_points.PARTITIONINGS, partitioned(t)),
                throughput_with_half_the_bandwidth=in_series(paper_points.PARTITIONINGS, lambda point, x: 0.5),
            )
            for t in (16, 32)
        ),
    ],
    "less_optimized_partitioning": [
        (
            under(
                "throughput is lower",
                1.0,
                throughput_per_gpu=in_series(paper_points.PARTITIONINGS, partitioned(t)),
                pipeline_traffic=lambda point, x: 1.0 if point.t == 8 else 2.0,
                data_traffic=0.0,
                tensor_traffic=1.0,
            ),
            over(
                "a GPU sends more bytes to other nodes (counted)",
                8.0,
                throughput_per_gpu=in_series(paper_points.PARTITIONINGS, lambda point, x: 1 / point.t),
                pipeline_traffic=lambda point, x: 1.0 if point.t == 8 else 0.0,
                data_traffic=0.0,
                tensor_traffic=at(99.0, t=t),
            ),
        )
        for t in (16, 32)
    ],
    "data_communication_same_for_b": [
        only(
            "the bytes of the gradient all-reduce, counted, are equal",
            5.0,
            data_traffic=at(5.0, series=paper_points.BY_D, d=d, B=B, b=2),
        )
        for d, B in ((2, 128), (16, 512))
    ],
    "every_model_fits": [
        switch(
            "every plotted configuration of Figures 13 to 16 (64 GPUs) fits in a GPU's 80 GB",
            out=lambda point, x, judged=judged: not x and (point.series, point.label) == judged,
        )
        for judged in (
            (TAKEAWAY_1, "p=2, t=32, B=32"),
            (TAKEAWAY_2, "p=2, t=1, d=32, B=512"),
            (TAKEAWAY_2, "p=1, t=2, d=32, B=128"),
            (paper_points.BY_MODEL, "l=32, h=15360, p=8, d=1, B=128, b=8"),
        )
    ],
    "tensor_in_isolation": [
        under(
            "is slower than (t, p) = (8, 8) at both batch sizes",
            1.0,
            throughput_per_gpu=lambda point, x, B=B: (
                (x if point.B == B else 0.5) if point.series == paper_points.IN_ISOLATION else 1.0
            ),
        )
        for B in (32, 128)
    ],
    "sharded_optimizer_communication": at_most(
        "as many bytes for data parallelism, counted, or fewer",
        1.0,
        data_traffic=at(1.0, series=paper_points.SHARDED, label="sharded"),
    ),
    "sharded_optimizer_cost": [
        *between(
            "the optimizer step takes 1/d of its time, within 10%",
            0.9 / 32,
            1.1 / 32,
            optimizer_time=at(1.0, label="sharded"),
            peak_memory=at(0.0, label="replicated"),
            change=lambda point, x: {},
            patch={f"{FORMULAS}.parameters": lambda x: lambda model: -1.0},
        ),
        # 12 bytes of optimizer states for each of a GPU's billion parameters
        above(
            "the fullest GPU has less memory by at least 1 - 1/d of the optimizer's states",
            1 - 1 / 32,
            optimizer_time=lambda point, x: 1 / 32 if point.label == "sharded" else 1.0,
            peak_memory=lambda point, x: 100e9 - (12e9 * x if point.label == "sharded" else 0.0),
            patch={f"{FORMULAS}.parameters": lambda x: lambda model: 2e9},
        ),
    ],
    "needs_both_kinds": over(
        "exceed 80 GB a GPU with the most that either has alone",
        160 * 80e9 / 16,
        patch={f"{FORMULAS}.parameters": lambda x: lambda model: x},
    ),
    "mostly_gemms": over(
        "GEMMs of the operator inventory have more than half of all FLOPs",
        1.0,
        patch={f"{MODULE}._flops": lambda x: lambda: {"one": (x, 1.0), "other": (9.0, 1.0)}},
    ),
    "eq_3_is_a_lower_bound": between(
        "and not above it",
        0.9,
        1.0,
        patch={
            f"{FORMULAS}.flops_per_iteration": lambda x: lambda model, B: 1.0,
            f"{MODULE}._flops": lambda x: lambda: {row.label: (1 / x, 0.0) for row in table_1()},
        },
    ),
    "parameters_by_eq_2": only(
        "are exactly those of eq. (2)", 2, step=1, patch={f"{MODULE}.chunk_parameters": parameters_beyond}
    ),
    "data_parallelism_needs_memory": over(
        "exceed the 80 GB of one GPU", 80e9 / 16, patch={f"{FORMULAS}.parameters": lambda x: lambda model: x}
    ),
}
