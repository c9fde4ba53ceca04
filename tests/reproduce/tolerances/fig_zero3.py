"""Edges of Figure 10's claims."""

from itertools import pairwise
from types import SimpleNamespace

from tests.reproduce.tolerances.edges import INCONSISTENT, above, at, below, only, over, under

MODULE = "reproduce.papers.sc21.fig_zero3"
GPUS = {"175b": (384, 768, 1536), "530b": (640, 1120, 2240)}  # of ZeRO-3
USES = ("pipeline_traffic", "data_traffic", "embedding_traffic")


def kept(key):
    """Throughput that halves from step to step with ZeRO-3, and stays with PTD-P but for x at one key."""

    def value(point, x):
        step = (point.gpus > 700) + (point.gpus > 1200)
        if point.series.startswith("ZeRO"):
            return 0.5**step
        return x if point.key == key else 1.0

    return value


def traffic(judged, use):
    """Bytes to other nodes: 8 of ZeRO-3, one to each node; of PTD-P x where judged, less elsewhere.

    On the fewest GPUs, which are not judged, PTD-P sends many.
    """

    def value(point, x):
        if point.series.startswith("ZeRO"):
            return 8.0
        if point.key == judged[0]:
            return x if use == judged[1] else 0.0
        return 100.0 if point.gpus in (384, 560) else 0.25

    return value


EDGES = {
    "scales_more_gracefully": [
        over("PTD-P keeps a larger share of its throughput", 0.5, throughput_per_gpu=kept(key))
        for key in ("ptd_p_175b_768", "ptd_p_175b_1536", "ptd_p_530b_1120", "ptd_p_530b_2240")
    ],
    "less_cross_node_communication": [
        under(
            "PTD-P sends fewer than ZeRO-3, even if ZeRO-3 sent every tensor only once to each node",
            1.0,
            **{name: traffic((key, use), name) for name in USES},
        )
        for key in ("ptd_p_175b_768", "ptd_p_530b_2240")
        for use in USES
    ],
    "batch_too_small_to_hide": [
        over(
            "share of ZeRO-3's iteration rises from each number of GPUs to the next",
            float(fewer),
            iteration_time=5000,
            data_parallel_time=at(lambda point: point.gpus, key=f"zero_3_{model}_{more}"),
        )
        for model, counts in GPUS.items()
        for fewer, more in pairwise(counts)
    ],
    "fixed_batch_sizes": only(
        "one batch size along every line",
        1536,
        step=1,
        outside=INCONSISTENT,
        change=lambda point, x: {"B": x if point.key == "ptd_p_530b_2240" else 1536},
    ),
    "additional_communication": [
        above(
            "sends more than the 2(d-1)/d times the fp16 gradients",
            1.0,
            data_traffic=lambda point, x, key=key: 4 * (1 - 1 / point.gpus) * (x if point.key == key else 2.0),
            patch={f"{MODULE}.parameters": lambda x: lambda model: 1.0},
        )
        for key in ("zero_3_175b_384", "zero_3_530b_2240")
    ],
    "partially_hidden": [
        side(
            "the exposed seconds are above 0 and below the bytes over the simulator's bandwidth for them",
            value,
            tie=False,
            step=1e-9,
            data_traffic=1.0,
            data_parallel_time=at(0.5, key=key),
            patch={f"{MODULE}.read_parameters": lambda x: lambda name: {"zero3_bandwidth": SimpleNamespace(value=1.0)}},
        )
        for key in ("zero_3_175b_384", "zero_3_530b_640")
        for side, value in ((above, 0.0), (below, 1.0))
    ],
}
