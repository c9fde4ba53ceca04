"""Edges of Figure 9's claims."""

from types import SimpleNamespace

from ptdp_core.layout.communication import Transfer
from tests.reproduce.tolerances.edges import at, at_least, only

PLAN = "reproduce.papers.sc21.fig_scatter_gather_paths.plan"
TENSOR = 2 * 2048 * 12288  # bytes of bsh elements: GPT-3, b = 1


def bytes_at(key):
    return at(lambda point: point.paper["bytes_per_path"], key=key)


def whole_messages(x):
    """Eight messages of a tensor of 100 elements, of which the last has x."""
    sent = tuple(Transfer(i, 8 + i, 0, x if i == 7 else 100) for i in range(8))
    return lambda parameters: (SimpleNamespace(), 100, sent, ())


def halves(destination=2, start=50):
    """Halves of 100 elements from ranks 0 and 1 to `destination` and 3; rank 2 gathers the rest from `start` on."""
    sent = (Transfer(0, destination, 0, 50), Transfer(1, 3, 50, 100))
    gathered = (Transfer(3, destination, start, 100), Transfer(2, 3, 0, 50))
    return lambda parameters: (SimpleNamespace(), 100, sent, gathered)


EDGES = {
    "pipeline_communication_bsh": [
        only(
            "exactly, in elements, for every pair of GPUs", TENSOR, step=1, copies_sent=1, bytes_per_path=bytes_at(key)
        )
        for key in ("without_t8", "without_t2")
    ],
    "same_tensors_8_times": [
        only(
            "exactly eight messages", 8.0, copies_sent=lambda point, x: x, patch={PLAN: lambda x: whole_messages(100)}
        ),
        only("of the whole tensor at t=8", 100, step=1, copies_sent=8, patch={PLAN: whole_messages}),
    ],
    "peers_of_figure_9": [
        only("at t=2 exactly these messages", 2, step=2, patch={PLAN: lambda x: halves(destination=x)}),
        only("each element once", 50, step=1, patch={PLAN: lambda x: halves(start=x)}),
    ],
    "chunk_one_eighth": only(
        "exactly one eighth of the tensor", 1.0, bytes_per_path=lambda point, x: x if point.scatter_gather else 8
    ),
    "scatter_gather_bsh_over_t": [
        only(
            "exactly, in elements, for every pair of GPUs",
            TENSOR // t,
            step=1,
            copies_sent=1,
            bytes_per_path=bytes_at(f"with_t{t}"),
        )
        for t in (8, 2)
    ],
    "nvlink_much_faster": at_least(
        "carries at least ten times what its InfiniBand card does",
        10,
        patch={"reproduce.papers.sc21.fig_scatter_gather_paths.NVLINK": lambda x: x * 25e9},
    ),
}
