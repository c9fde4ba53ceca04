"""Edges of the claims that belong to no one figure."""

from types import SimpleNamespace

from ptdp_core import formulas
from ptdp_core.errors import ConfigurationError
from reproduce.papers.sc21 import paper_claims
from tests.reproduce.tolerances.edges import above, below, between, only, within

MODULE = "reproduce.papers.sc21.paper_claims"
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
flops, layers_of, build = formulas.flops_per_iteration, paper_claims.chunk_layers, paper_claims.build


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


EDGES = {
    "takeaway_1": [
        above(
            "t = g = 8 is the fastest at both batch sizes",
            1.0,
            throughput_per_gpu=in_series(TAKEAWAY_1, fastest(B, t)),
        )
        for B in (32, 128)
        for t in (2, 4, 16, 32)
    ],
    "takeaway_2": [
        below(
            "no M is more than 1% faster than the smallest, at each batch size",
            1.01,
            out=lambda point, x: point.p * point.t == 1,
            throughput_per_gpu=in_series(
                TAKEAWAY_2, lambda point, x, B=B, M=M: x if (point.B, point.p * point.t) == (B, M) else 1.0
            ),
        )
        for B in (32, 128, 512)
        for M in (4, 64)
    ],
    "takeaway_3": [
        above("the best b differs with the model, p, d and B", 1.0, throughput_per_gpu=best_microbatch(judged))
        for judged in DEPENDS
    ],
    "half_of_time_flushing": between(
        "the bubble takes at most 50% of an iteration, at least 45% of one",
        0.45,
        0.50,
        patch={f"{FORMULAS}.bubble_fraction_data_parallel": lambda x: lambda n, d, b_prime: x / (1 - x)},
    ),
    "more_microbatches_less_flush": [
        below(
            "falls from each m to the next",
            16 / m,
            tie=False,
            patch={f"{MODULE}.bubble_fraction": bubbles(m)},
        )
        for m in MICROBATCHES[1:]
    ],
    "layers_of_devices": [
        only("exactly, by the layout of layers", 12, step=1, patch={f"{MODULE}.chunk_layers": layers_with}),
        only("by the stages that the interleaved schedule runs", 7, step=1, patch={f"{MODULE}.build": schedule_with}),
    ],
    "optimal_checkpoints": [
        below(
            "less memory than at 0.1 to 10 times that c, for 1 to 32 layers and ratios of 1 to 100",
            1.0,
            tie=False,
            patch={
                f"{FORMULAS}.optimal_kept_inputs": lambda x: lambda layers, kept, intermediate: 100.0,
                f"{FORMULAS}.recomputation_memory": memory(rival),
            },
        )
        for rival in ((10, 1, 1), (1000, 32, 100))
    ],
    "eq_4_approximates": [
        edge
        for trillion in (False, True)
        for edge in between(
            "within 5% of the time by eq. 3, for GPT-3 and the trillion-parameter model",
            0.95,
            1.05,
            patch={
                f"{FORMULAS}.training_time": lambda x: lambda model, B, tokens, n, rate: 1.0,
                f"{FORMULAS}.training_time_approximate": approximation(trillion),
            },
        )
    ],
    "flops_per_iteration": within(
        "counted for Table 1's models, to 1e-12",
        0.0,
        1e-12,
        step=5e-15,
        patch={f"{FORMULAS}.flops_per_iteration": lambda x: lambda model, B: flops(model, B) * (1 + x)},
    ),
    "data_parallel_to_1536": [
        only("the largest d that can be configured", 1536, step=1, patch={f"{MODULE}.ParallelConfig": up_to})
    ],
    "pipeline_up_to_layers": [
        only("the largest p that can be configured", 32, step=1, patch={f"{MODULE}.TrainingConfig": stages_up_to})
    ],
}
