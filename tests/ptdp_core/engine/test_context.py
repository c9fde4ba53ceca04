"""Context parallelism: which chunks a rank has, what it keeps of gathered keys and values, and its masks of dropout."""

from typing import Any

import pytest
import torch

from ptdp_core.engine.context import by_rank, in_order, own_chunks
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs


@pytest.mark.parametrize("c", [2, 3, 4])
def test_a_rank_has_a_chunk_of_either_half_so_that_all_see_as_many_keys(c: int) -> None:
    sequence = torch.arange(24).view(1, 24)
    own = [own_chunks(sequence, Axis("cp", rank, c), 1) for rank in range(c)]
    assert {int((part + 1).sum()) for part in own} == {24 * 25 // 2 // c}  # token i sees i + 1 keys
    parts = torch.stack([part[0] for part in own])
    assert torch.equal(in_order(parts), sequence[0])
    assert torch.equal(by_rank(sequence[0], c), parts)


@pytest.mark.parametrize(("recompute", "places"), [("none", 4), ("full", 0)])
def test_of_gathered_keys_and_values_only_places_are_kept_until_the_backward_pass(recompute: str, places: int) -> None:
    """For each layer's two chunks of queries those of keys and of values; a recomputed layer needs them at once."""
    layers = 3
    case = {"c": 2, "B": 1, "layers": layers, "seq": 16, "attention": "sdpa", "recompute": recompute}
    for kept, gathered in launch(jobs.kept_of_gathered, 2, (case,), timeout=60):
        assert kept == places * layers
        assert gathered == 2 * layers


def test_context_ranks_draw_other_masks_and_the_first_those_of_a_run_without_others() -> None:
    def draws(*ranks: int) -> list[torch.Tensor]:
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
def test_a_recomputed_pass_draws_the_same_masks(exchange: str) -> None:
    case: dict[str, Any] = {"c": 2, "B": 2, "layers": 2, "dropout": 0.2, "context_exchange": exchange}
    runs = [
        launch(jobs.losses_and_norms, 2, (case | {"recompute": recompute},), timeout=60)
        for recompute in ("none", "selective", "full")
    ]
    kept, *recomputed = (torch.tensor(run, dtype=torch.float64) for run in runs)
    for again in recomputed:
        torch.testing.assert_close(again, kept, rtol=1e-12, atol=0)


def test_the_chunks_of_a_rank_have_masks_of_their_own() -> None:
    case: dict[str, Any] = {"c": 2, "B": 1, "layers": 1, "seq": 16, "dropout": 0.5}
    for seeds in launch(jobs.seeds_of_attention, 2, (case,), timeout=60):
        assert len(seeds) == len(set(seeds)) == 2
