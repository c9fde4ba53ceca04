"""Edges of Figure 5's claims."""

from types import SimpleNamespace

from reproduce.papers.sc21 import fig_tensor_partition as module
from tests.reproduce.tolerances.edges import only, over, within

COLUMNS, ROWS, T, WIDTH = 0, 1, 8, 128
COUNTS = (
    "all_reduces_forward",
    "all_reduces_backward",
    "cost_model_all_reduces_forward",
    "cost_model_all_reduces_backward",
)
MODULE = "reproduce.papers.sc21.fig_tensor_partition"
LARGEST = max(max(map(abs, row)) for row in module._gelu(module._times(module.X, module.WEIGHT)))
WEIGHTS = "reproduce.papers.sc21.fig_tensor_partition._weights"


def matrix(split, size, shift=0):
    """A matrix whose slices are `size` columns or rows; the last rank's begins and ends `shift` later."""

    def shard(t, rank):
        moved = shift if rank == t - 1 else 0
        return SimpleNamespace(start=size * rank + moved, stop=size * (rank + 1) + moved)

    return SimpleNamespace(split=split, shape=(T * size, T * size), shard=shard)


def differences(by_columns, by_rows):
    """The differences from the whole that are asked for, one after the other."""
    values = iter((by_columns, by_rows))
    return lambda whole, parts: next(values)


def pairs(qkv, projection):
    """Blocks of these two matrices."""
    return lambda model, block: (qkv, projection)


EDGES = {
    "two_all_reduces_each_way": [
        only(
            "exactly two and two",
            2,
            step=1,
            **{
                name: lambda point, x, judged=judged, name=name: x if (point.key, name) == ("layer_t8", judged) else 2
                for name in COUNTS
            },
        )
        for judged in COUNTS
    ],
    **{
        f"{part}_communication": within(
            "to 1e-9",
            1.0,
            1e-9,
            step=1e-12,
            elements_per_gpu=lambda point, x, key=f"{part}_t4": (
                (x if point.key == key else 1) * point.paper.get("elements_per_gpu", 1)
            ),
        )
        for part in ("layer", "stage")
    },
    "no_communication_between_the_gemms": [
        only(
            "exactly, at every rank",
            0,
            step=1,
            patch={WEIGHTS: lambda x: pairs(matrix(COLUMNS, 3 * WIDTH), matrix(ROWS, WIDTH, x))},
        ),
        only(
            "split along its rows",
            ROWS,
            step=1,
            patch={WEIGHTS: lambda x: pairs(matrix(COLUMNS, 3 * WIDTH), matrix(x, WIDTH))},
        ),
    ],
    "column_parallel_heads": [
        only("begins and ends between heads", 0, step=1, patch={WEIGHTS: lambda x, change=change: change(x)})
        for change in (
            lambda x: pairs(matrix(COLUMNS, 3 * WIDTH, x), matrix(ROWS, WIDTH)),
            lambda x: pairs(matrix(COLUMNS, 3 * WIDTH), matrix(ROWS, WIDTH, x)),
        )
    ],
    "conjugate_operators": [
        only(
            words,
            value,
            step=1,
            patch={
                f"{MODULE}.all_reduces": lambda x, counts=counts: (
                    lambda matrices: counts(x, matrices[0].split == COLUMNS)
                )
            },
        )
        for words, value, counts in (
            ("a column-parallel matrix has an all-reduce backward", 1, lambda x, column: (0, x) if column else (1, 0)),
            ("and none forward (f)", 0, lambda x, column: (x, 1) if column else (1, 0)),
            ("a row-parallel one forward", 1, lambda x, column: (0, 1) if column else (x, 0)),
            ("and none backward (g)", 0, lambda x, column: (0, 1) if column else (1, x)),
        )
    ],
    "gelu_of_each_part": [
        only("equals GeLU(XA) exactly", 0.0, step=1e-15, patch={f"{MODULE}._apart": lambda x: differences(x, 1.0)}),
        over(
            "differs from it by more than 1%", 0.01 * LARGEST, patch={f"{MODULE}._apart": lambda x: differences(0.0, x)}
        ),
    ],
}
