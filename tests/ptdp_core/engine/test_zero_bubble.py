"""ZB-H1 really trains: the serial model's results in fp64, and 1F1B's to the bit in any precision."""

import random

import pytest
import torch

from ptdp_core.engine.groups import Axis
from ptdp_core.engine.pipeline import SplitStage
from ptdp_core.engine.weight_gradients import DeferredWgrad, WeightGradients
from ptdp_core.launch.local import launch
from ptdp_core.layout import Boundary
from ptdp_core.turns import Turns
from reproduce.annex.emulation.virtual import ChunkTimes, Pace, VirtualChunk
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.test_parity import References, check, draw_rest


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return References(tmp_path_factory.mktemp("serial"))


@pytest.mark.slow
def test_parity_with_the_serial_model(references):
    """Both ways to recompute, to reduce and to exchange, with and without tensor parallelism and scatter/gather."""
    rng = random.Random(11)
    layouts = [(1, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2)]
    ways = [("blocking", "full"), ("overlapped", "none"), ("blocking", "none"), ("overlapped", "full")]
    cases = [
        draw_rest(rng, p=p, t=t, d=d, v=1, schedule="zb-h1", exchange=exchange) | {"recompute": recompute}
        for (p, t, d), (exchange, recompute) in zip([*layouts, *layouts[1:3]], [*ways, *ways[:2]], strict=True)
    ]
    assert {case["data_parallel"] for case in cases} == {"local", "torch"}
    check(cases, references)


@pytest.mark.parametrize(
    ("dtype", "sequence_parallel"),
    [
        pytest.param("fp32", False, marks=pytest.mark.slow),
        ("bf16", False),
        pytest.param("bf16", True, marks=pytest.mark.slow),
    ],
)
def test_equals_1f1b_to_the_bit(dtype, sequence_parallel):
    """Every weight's gradients are added in the order of the microbatches, whenever their W runs."""
    case = {"p": 2, "t": 2, "B": 4, "layers": 2, "dtype": dtype, "dropout": 0.1}
    case["sequence_parallel"] = sequence_parallel
    cases = [
        case | {"schedule": schedule, "recompute": recompute}
        for recompute in ("full", "none")
        for schedule in ("1f1b", "zb-h1")
    ]
    for rows in launch(jobs.trained, 4, (cases,), timeout=60):
        for whole, split in zip(rows[::2], rows[1::2], strict=True):
            assert whole == split


def test_weight_gradients_are_deferred_and_added_with_their_hooks():
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    called = []
    weight.register_post_accumulate_grad_hook(lambda parameter: called.append(parameter.grad))
    gradients = WeightGradients(split=True)
    wgrad = DeferredWgrad(weight, torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0]]))
    with gradients.defer() as later:
        assert gradients.compute(*wgrad) is None
    assert later == [wgrad]
    assert weight.grad is None
    gradients.add(later)
    assert weight.grad.tolist() == [[1.0, 0.0, 3.0], [2.0, 0.0, 6.0]]
    assert len(called) == 1
    gradients.accumulate_into({weight: weight.grad}, called.append)
    gradients.add([wgrad])
    assert weight.grad.tolist() == [[2.0, 0.0, 6.0], [4.0, 0.0, 12.0]]
    assert called[1] is weight


def test_a_virtual_accelerator_takes_the_two_halves_times():
    spent = []

    class Recorded(Pace):
        def spend(self, seconds):
            spent.append(seconds)

    times = ChunkTimes(forward=3.0, backward=6.0, weight_gradient=2.0)
    pieces = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    ends = {"received": False, "sent": False, "is_last": True}
    chunk = VirtualChunk(times, pieces, Boundary((4,), 1), Axis("tp"), Axis("ep"), Recorded(), Turns(), **ends)
    assert isinstance(chunk, SplitStage)
    with chunk.defer_weight_gradients(0):
        chunk(None).backward()
    chunk.add_weight_gradients(0)
    chunk(None).backward()
    assert spent == [1.5, 1.5, 2.0, 2.0, 2.0, 1.5, 1.5, 3.0, 3.0]


def test_stages_that_cannot_defer_are_refused():
    (text,) = launch(jobs.unsplittable, 1, (), timeout=30, process_group=False)
    assert text == (
        "schedule='zb-h1' splits backward passes; needs stages that can defer their weight gradients (SplitStage); "
        "try schedule='1f1b'"
    )
