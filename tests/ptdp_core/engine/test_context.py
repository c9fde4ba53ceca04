"""Context parallelism: which chunks a rank has, what it keeps of gathered keys and values, and its masks of dropout."""

import pytest
import torch

from ptdp_core.engine.context import by_rank, in_order, own_chunks
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.ring_attention import seen
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.launch import preflight
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.jobs import in_ranks


@pytest.mark.parametrize("c", [2, 3, 4])
def test_around_a_ring_every_query_meets_the_keys_before_it_once(c):
    """Position by position: what a rank takes of each part, under the mask of its own, is all that is to be seen."""
    s = 24 // c
    places = [own_chunks(torch.arange(24), Axis("cp", rank, c), 0) for rank in range(c)]
    for rank, mine in enumerate(places):
        met = []
        for source, theirs in enumerate(places):
            queries, keys = seen(source, rank, s)
            met += [(int(i), int(j)) for i in mine[queries] for j in theirs[keys] if source != rank or j <= i]
        assert sorted(met) == sorted((int(i), j) for i in mine for j in range(int(i) + 1))


@pytest.mark.parametrize("c", [2, 3, 4])
def test_a_rank_has_a_chunk_of_either_half_so_that_all_see_as_many_keys(c):
    sequence = torch.arange(24).view(1, 24)
    own = [own_chunks(sequence, Axis("cp", rank, c), 1) for rank in range(c)]
    assert {int((part + 1).sum()) for part in own} == {24 * 25 // 2 // c}  # token i sees i + 1 keys
    parts = torch.stack([part[0] for part in own])
    assert torch.equal(in_order(parts), sequence[0])
    assert torch.equal(by_rank(sequence[0], c), parts)


@pytest.mark.parametrize(("recompute", "places"), [("none", 4), ("full", 0)])
def test_of_gathered_keys_and_values_only_places_are_kept_until_the_backward_pass(recompute, places):
    """For each layer's two chunks of queries those of keys and of values; a recomputed layer needs them at once."""
    layers = 3
    case = {"c": 2, "B": 1, "layers": layers, "seq": 16, "attention": "sdpa", "recompute": recompute}
    for kept, gathered in in_ranks(jobs.kept_of_gathered, case):
        assert kept == places * layers
        assert gathered == 2 * layers


def test_context_ranks_draw_other_masks_and_the_first_those_of_a_run_without_others():
    def draws(*ranks):
        tracker = RNGTracker(1, torch.device("cpu"), *ranks)
        drawn = []
        for seed in (tracker.replicated, tracker.sharded):
            seed(2, 1)
            drawn.append(torch.rand(8))
        return drawn

    alone, first, second = draws(3), draws(3, 0), draws(3, 1)
    assert all(map(torch.equal, alone, first))
    assert not any(torch.equal(mine, other) for mine in first for other in second)


@pytest.mark.parametrize("exchange", ["all_gather", "all_to_all"])
def test_a_recomputed_pass_draws_the_same_masks(exchange):
    case = {"c": 2, "B": 2, "layers": 2, "dropout": 0.2, "context_exchange": exchange}
    ways = ("none", "selective", "full")
    runs = [in_ranks(jobs.losses_and_norms, case | {"recompute": recompute}) for recompute in ways]
    kept, *recomputed = (torch.tensor(run, dtype=torch.float64) for run in runs)
    for again in recomputed:
        torch.testing.assert_close(again, kept, rtol=1e-12, atol=0)


def test_the_chunks_of_a_rank_have_masks_of_their_own():
    case = {"c": 2, "B": 1, "layers": 1, "seq": 16, "dropout": 0.5}
    for seeds in in_ranks(jobs.seeds_of_attention, case):
        assert len(seeds) == len(set(seeds)) == 2


@pytest.mark.parametrize(
    ("case", "capability", "problem"),
    [
        ({"dtype": "fp32"}, (9, 0), r"dtype='fp32' on a GPU.*needs one of bf16, fp16; try dtype='bf16'"),
        ({"head_dim": 12}, (9, 0), "heads of 12 elements on a GPU.*multiples of 8 up to 256; needs such heads; try"),
        ({"head_dim": 264}, (9, 0), "heads of 264 elements on a GPU"),
        (
            {},
            (7, 5),
            r"on a GPU of compute capability 7\.5, .*; needs 8\.0 or newer; try context_exchange='all_gather'",
        ),
    ],
)
def test_a_ring_that_a_gpus_attention_will_refuse_is_refused_before_ranks_start(case, capability, problem, monkeypatch):
    monkeypatch.setattr(preflight, "local_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(preflight, "select", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    ring = {"c": 2, "B": 1, "hidden": 32, "attention": "sdpa", "context_exchange": "ring", "dtype": "bf16"}
    with pytest.raises(ValueError, match=problem):
        preflight.preflight(jobs.settings_of(ring | case))


def test_gradients_around_a_ring_are_not_summed_in_16_bits():
    """The first chunk's keys get 256 from their own rank and 1 from each of two others: in bf16 that stays 256."""
    assert launch(jobs.gradient_around_a_ring, 3, timeout=60) == [258.0] * 3
