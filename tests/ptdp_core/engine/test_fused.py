"""A fused F and B really take turns at the exchanges of experts, and change no gradient, no count and no stash."""

from dataclasses import replace

import pytest

from ptdp_core.engine.settings import RunSettings
from ptdp_core.launch.local import launch
from ptdp_core.launch.preflight import preflight
from ptdp_core.schedules import build, peak_stash
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.test_experts import MIXTURE

BASE = MIXTURE | {"layers": 8, "p": 2, "d": 2, "e": 2, "B": 16, "recompute": "none", "data_parallel": "local"}
ONE_AFTER_THE_OTHER, FUSED = ({"v": 2, "schedule": f"dualpipev{how}"} for how in ("", "-overlap"))
WAYS = [
    {"dropout": 0.1},
    {"exchange": "overlapped", "recompute": "full", "dropout": 0.1},
    pytest.param({"recompute": "selective", "fused_accumulation": True}, marks=pytest.mark.slow),
    pytest.param({"dense_layers": 1, "shared_expert_ffn_hidden": 12, "auxiliary_loss": 0.1}, marks=pytest.mark.slow),
    pytest.param({"t": 2, "d": 1, "etp": 1, "sequence_parallel": True, "recompute": "full"}, marks=pytest.mark.slow),
    pytest.param({"c": 2, "d": 1, "context_exchange": "all_to_all", "capacity_factor": 0.7}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_equal_1f1bs_to_the_bit(way):
    cases = [BASE | way | {"schedule": "1f1b"}, BASE | way | FUSED]
    by_rank = launch(jobs.fused, 4, (cases,), timeout=120)
    reference, fused = ({key: value for rank in by_rank for key, value in rank[i].gradients.items()} for i in (0, 1))
    assert len(reference) > 100
    assert reference == fused
    table = build("dualpipev-overlap", 2, jobs.settings_of(cases[1]).parallel.m, 2)
    for rank, (plain, ours) in enumerate(by_rank):
        pp = rank // 2
        assert plain.handed_over == 0
        # Each F of a pair hands over at its exchanges, two a layer, and its B as often as the F is not done by then.
        layers = jobs.settings_of(cases[1]).model.layers // 4
        pairs = sum(action in table.fused for action in table.ranks[pp])
        if "dense_layers" not in way:
            assert ours.handed_over >= pairs * layers * 2 * 2 - pairs
        assert ours.peak_stash == peak_stash(table)[pp]


def test_a_profile_of_fused_passes_is_refused_before_a_rank_starts():
    settings = replace(jobs.settings_of(BASE | FUSED), run=RunSettings(profile="traces"))
    message = (
        "profile='traces' with schedule='dualpipev-overlap', of whose fused passes torch.profiler sees one thread; "
    )
    with pytest.raises(ValueError, match="^" + message):
        preflight(settings)


def test_all_to_alls_and_their_bytes_are_those_of_the_same_passes_one_after_the_other():
    cases = [BASE | {"recompute": "full"} | how for how in (ONE_AFTER_THE_OTHER, FUSED)]
    for one, fused in launch(jobs.fused, 4, (cases,), timeout=120):
        assert one.exchanged == fused.exchanged
        assert len(fused.exchanged) == 8 * 4 * (2 * 3 + 2)  # m * layers * (dispatch, combine, counts, twice; backward)
        assert one.handed_over == 0 < fused.handed_over
    for one, fused in launch(jobs.all_communicated, 4, (cases,), timeout=120):
        assert one == fused
