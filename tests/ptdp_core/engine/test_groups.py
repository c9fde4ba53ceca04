"""The rank grid: axes of a real process group, the paper's 3072 ranks on a pretended one, and a wrong world size."""

import pytest
import torch

from ptdp_core.engine.groups import local_device
from ptdp_core.launch.local import launch
from ptdp_core.layout import RankGrid
from tests.ptdp_core.engine import jobs


def test_axes_are_pp_dp_tp_with_tp_fastest():
    for rank, row in enumerate(launch(jobs.places, 8, ((2, 2, 2),), timeout=60)):
        assert row[0] == rank
        pp, dp, tp = rank // 4, rank // 2 % 2, rank % 2
        assert row[1:4] == [pp, dp, tp]
        assert row[4] == [4 * i + 2 * dp + tp for i in range(2)]
        assert row[5] == [4 * pp + 2 * i + tp for i in range(2)]
        assert row[6] == [4 * pp + 2 * dp + i for i in range(2)]


@pytest.mark.parametrize("rank", [0, 3071])
def test_the_paper_s_grid_fits_into_one_process(rank):
    pp, dp, tp, again, groups = launch(jobs.pretend, 1, (rank,), process_group=False, timeout=60)[0]
    assert again == rank
    assert {"pp": pp, "dp": dp, "cp": 0, "tp": tp} == RankGrid.sized(p=64, t=8, d=6).coordinates(rank)
    assert groups == 5  # its own: a rank that made all 1,040 of the grid took minutes


def test_many_ranks_connect_only_to_those_they_talk_to(tmp_path):
    sockets = {}
    for full_mesh in (8, 7):
        store = str(tmp_path / str(full_mesh))
        sockets[full_mesh] = max(launch(jobs.connections, 8, (store, full_mesh), timeout=60, process_group=False))
    assert sockets[7] < sockets[8]


def test_no_collective_of_cpus_is_noted():
    """The notes scatter the heap, so that a rank grows with every step: `test_long_run.py`."""
    assert launch(jobs.collectives_noted, 2) == [0, 0]


@pytest.mark.parametrize(("visible", "local_rank", "index"), [(8, 3, 3), (1, 3, 0), (1, 0, 0), (2, 3, None)])
def test_a_rank_s_gpu(visible, local_rank, index, monkeypatch):
    """Slurm may show each task one GPU only, which is its device 0 whatever its LOCAL_RANK."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    if index is None:
        with pytest.raises(ValueError, match="LOCAL_RANK=3, and 2 GPUs here; needs a GPU for each rank; try 2 ranks"):
            local_device("cuda")
    else:
        assert local_device("auto") == torch.device("cuda", index)
