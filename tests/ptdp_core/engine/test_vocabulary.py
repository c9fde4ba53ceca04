"""A vocabulary that all pipeline ranks share trains as one rank does: fp64, three steps, 1e-9 relative."""

from itertools import product

import pytest

from ptdp_core.layout import vocabulary_exchanges
from reproduce.annex.exact import engine
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.jobs import in_ranks
from tests.ptdp_core.engine.test_parity import References
from tests.ptdp_core.engine.test_parity import check as check_parity

METHODS = ("vocab-1", "vocab-2", "interlaced")
SCHEDULES = (("1f1b", 1), ("v-half", 2))


def case(schedule, v, method, p, m, **fields):
    """A case of `jobs`; of 250 words each of two ranks has some, of 500 each of four."""
    fields = {"vocab": 125 * p, "layers": 4 if p * v <= 4 else 8, "recompute": "none"} | fields
    return {"p": p, "t": 1, "d": 1, "v": v, "schedule": f"{schedule}+{method}", "b": 1, "B": m} | fields


DEFAULT = [
    case("1f1b", 1, "vocab-1", 2, 5, tied_embeddings=False),
    case("1f1b", 1, "vocab-2", 2, 5, exchange="overlapped", data_parallel="torch", bucket_mib=0.002),
    case("1f1b", 1, "interlaced", 2, 3, tied_embeddings=False, recompute="full"),
    case("v-half", 2, "vocab-1", 2, 5, exchange="overlapped", fused_accumulation=True),
    case("v-half", 2, "vocab-2", 2, 4, tied_embeddings=False, b=2, B=8),
]
# One rank of padding alone, batches shorter than the pipeline, replicas, dropout, rotary positions.
FURTHER = [
    case(*schedule, method, p, m, **fields)
    for schedule, method, (p, m, fields) in product(
        SCHEDULES,
        METHODS,
        (
            (4, 9, {"vocab": 300, "tied_embeddings": False, "positions": "rotary"}),
            (4, 3, {"exchange": "overlapped"}),
            (2, 1, {"d": 2, "B": 2, "sharded_optimizer": True}),
            (3, 5, {"layers": 6, "vocab": 50, "tied_embeddings": False, "norm": "rmsnorm", "bias": False}),
            (4, 8, {"dropout": 0.1, "recompute": "full"}),
        ),
    )
]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return References(tmp_path_factory.mktemp("serial"))


def test_loss_and_gradients_are_one_rank_s(references):
    check_parity(DEFAULT, references, jobs.compare_shared)


@pytest.mark.slow
def test_further_layouts_give_one_rank_s_loss_and_gradients(references):
    check_parity(FURTHER, references, jobs.compare_shared)


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_the_vocabulary_anywhere_else(tmp_path):
    words = {"vocab": 250, "tied_embeddings": False, "layers": 4, "recompute": "none", "B": 4}
    expected = in_ranks(
        jobs.save_and_go_on, words | {"p": 2, "v": 2, "d": 2, "schedule": "v-half+vocab-1"}, str(tmp_path), False
    )
    for layout in ({}, {"p": 2, "t": 2}, {"p": 4, "schedule": "1f1b+vocab-2"}, {"p": 2, "schedule": "1f1b+interlaced"}):
        losses, _ = in_ranks(jobs.load_and_go_on, words | layout, str(tmp_path))[0]
        assert losses == pytest.approx(expected[0], rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_ranks_exchange_what_the_layout_says(method):
    """Calls and bytes of a rank for each microbatch, as it gives them: of a gathered tensor its own part."""
    of_case = {"p": 2, "B": 3, "recompute": "none", "schedule": f"1f1b+{method}"}
    (entry,) = engine.run((of_case,), engine.count_in_rank).values()
    counted, settings = entry.quantities["communication"], engine.settings(of_case)
    names = {"E": "embedding", "F": "output", "S": "scores", "T": "output_gradient", "B": "embedding_gradient"}
    for kind, call in vocabulary_exchanges(settings.training).items():
        size = call.elements * 4 // (2 if kind == "S" else 1)  # fp32
        assert counted[f"{names[kind]} {call.operation} calls"] == [3, 3]
        assert counted[f"{names[kind]} {call.operation} bytes"] == [3 * size, 3 * size]
