"""Checkpoints: the curve goes on at another layout, bit for bit at the same one; faults leave the last good one."""

import itertools
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.engine.checkpoint import MANIFEST, newest, problem, resolve
from ptdp_core.engine.pieces import rectangles
from ptdp_core.launch.local import RankError, launch
from ptdp_core.layout import Parameter, ShardSpec
from tests.ptdp_core.engine import jobs

BASE: dict[str, Any] = {"B": 4, "layers": 4, "dropout": 0.1, "recompute": "none"}
SAVED = BASE | {"p": 2, "t": 2, "d": 2}


def run(function: Any, case: dict[str, Any], *args: Any) -> list[Any]:
    ranks = case.get("p", 1) * case.get("t", 1) * case.get("d", 1)
    return launch(function, ranks, (case, *args), timeout=60, process_group=ranks > 1)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "sharded"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    folder = tmp_path_factory.mktemp("saved")
    case = SAVED | {"sharded_optimizer": request.param}
    return folder, run(jobs.save_and_go_on, case, str(folder), False)[0]


@pytest.mark.parametrize("sharded", [False, True])
def test_at_the_same_layout_it_goes_on_bit_for_bit(saved: tuple[Path, list[float]], sharded: bool) -> None:
    folder, expected = saved
    losses, progress = run(jobs.load_and_go_on, SAVED | {"sharded_optimizer": sharded}, str(folder))[0]
    assert losses == expected
    assert progress == {"step": 2, "consumed": 8, "seed": jobs.SEED, "updates": 2, "scale": 1.0, "good_steps": 0}


def test_with_dropout_the_curve_goes_on_at_another_layout(saved: tuple[Path, list[float]]) -> None:
    """Masks depend on the step, the microbatch and (in attention) t, not on p, v, d or the sharding of anything."""
    folder, expected = saved
    for layout in ({"p": 2, "v": 2, "t": 2}, {"t": 2, "d": 2, "sharded_optimizer": True, "data_parallel": "torch"}):
        losses, _ = run(jobs.load_and_go_on, BASE | layout, str(folder))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


LAYOUTS: list[dict[str, Any]] = [
    {"p": 4, "t": 1, "d": 2},
    {},
    {"t": 4},
    {"d": 4, "sharded_optimizer": True, "data_parallel": "torch", "bucket_mib": 0.002},
]


@pytest.mark.parametrize("sharded", [False, True])
def test_at_any_layout_the_curve_goes_on(sharded: bool, tmp_path: Path) -> None:
    plain = {"dropout": 0.0}
    case = SAVED | plain | {"sharded_optimizer": sharded}
    expected = run(jobs.save_and_go_on, case, str(tmp_path), False)[0]
    for layout in LAYOUTS:
        losses, _ = run(jobs.load_and_go_on, BASE | layout | plain, str(tmp_path))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixed_precision_keeps_master_weights(dtype: str, tmp_path: Path) -> None:
    case = BASE | {"p": 2, "dtype": dtype, "dropout": 0.0}
    expected = run(jobs.save_and_go_on, case, str(tmp_path), False)[0]
    assert run(jobs.load_and_go_on, case, str(tmp_path))[0][0] == expected


def test_saving_in_the_background_is_the_same(tmp_path: Path) -> None:
    expected = run(jobs.save_and_go_on, SAVED, str(tmp_path), True)[0]
    assert run(jobs.load_and_go_on, SAVED, str(tmp_path))[0][0] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000002"]


@pytest.mark.parametrize("who", [0, 3])
def test_a_crash_while_saving_leaves_the_checkpoint_before(who: int, tmp_path: Path) -> None:
    with pytest.raises(RankError, match=f"rank {who} was killed by SIGKILL"):
        run(jobs.die_while_saving, BASE | {"p": 2, "t": 2}, str(tmp_path), who)
    last = newest(tmp_path)
    assert last is not None
    assert last.name == "step_00000001"
    _, progress = run(jobs.load_and_go_on, BASE | {"p": 2}, str(tmp_path))[0]
    assert progress["step"] == 1


def test_a_full_disk(tmp_path: Path) -> None:
    """On a small file system where this user may mount one, else with a limit on the size of a file."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], stderr=subprocess.DEVNULL
    )
    try:
        start = time.monotonic()
        with pytest.raises(RankError) as caught:
            run(jobs.fill_the_disk, BASE | {"p": 2}, str(disk), 0 if mounted else 5000)
        assert time.monotonic() - start < 40  # not the timeout of those who wait for the rank
        assert "No space left on device" in str(caught.value) or "File too large" in str(caught.value)
        assert "the checkpoints before it are as they were" in str(caught.value)
        last = newest(disk)
        assert last is not None
        assert not list(disk.glob(".*"))  # the failed one is gone
        _, progress = run(jobs.load_and_go_on, BASE, str(disk))[0]
        assert progress["step"] == int(last.name[-8:])
    finally:
        if mounted:
            subprocess.check_call(["umount", str(disk)])


def test_a_truncated_checkpoint(tmp_path: Path) -> None:
    run(jobs.die_while_saving, BASE, str(tmp_path), 9)  # nobody dies: two checkpoints
    second = tmp_path / "step_00000002"
    victim = next(second.glob("*.distcp"))
    size = victim.stat().st_size
    os.truncate(victim, size // 2)
    assert problem(second) == f"has {victim.name} with {size // 2} bytes, where {size} were saved"
    with pytest.raises(ValueError, match=r"step_00000002' has __0_0.distcp with .*; try .*step_00000001"):
        resolve(second)
    assert resolve(tmp_path).name == "step_00000001"
    assert run(jobs.load_and_go_on, BASE, str(tmp_path))[0][1]["step"] == 1


def test_lost_files(tmp_path: Path) -> None:
    run(jobs.die_while_saving, BASE, str(tmp_path), 9)
    manifest = json.loads((tmp_path / "step_00000001" / MANIFEST).read_text())
    assert ".metadata" in manifest
    (tmp_path / "step_00000001" / "state.json").unlink()
    (tmp_path / "step_00000002" / MANIFEST).unlink()
    assert problem(tmp_path / "step_00000001") == "lacks state.json"
    with pytest.raises(ValueError, match=r"holds no usable checkpoint; needs step_\* inside; try without load"):
        resolve(tmp_path)


def test_other_model_sizes_are_refused(tmp_path: Path) -> None:
    run(jobs.die_while_saving, BASE, str(tmp_path), 9)
    with pytest.raises(RankError, match=r"has parameter\.layers\.7.* as nothing; needs .*; try the model sizes"):
        run(jobs.load_and_go_on, BASE | {"layers": 8}, str(tmp_path))


@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    dim=st.sampled_from([None, 0, 1]),
    t=st.integers(1, 3),
    padding=st.integers(0, 7),
    cuts=st.lists(st.integers(0, 36), max_size=4),
)
def test_rectangles_cover_a_tensor_exactly_once(
    rows: int, columns: int, dim: int | None, t: int, padding: int, cuts: list[int]
) -> None:
    """Any cut of every tensor rank's flat part, padding included, puts each real element where it belongs."""
    sizes = [rows, columns]
    if dim is not None:
        sizes[dim] *= t
    whole = torch.arange(float(sizes[0] * sizes[1])).view(sizes)
    real = max(1, sizes[0] - padding) if dim == 0 else sizes[0]
    whole, back = whole[:real], torch.full((real, sizes[1]), -1.0)
    for rank in range(t if dim is not None else 1):
        local = torch.full((rows, columns), -7.0)
        offset = valid = 0
        if dim is None:
            local.copy_(whole)
        else:
            size = local.size(dim)
            offset = min(rank * size, whole.size(dim))
            valid = min(size, whole.size(dim) - offset)
            local.narrow(dim, 0, valid).copy_(whole.narrow(dim, offset, valid))
        shard = ShardSpec(Parameter("x", tuple(whole.shape), dim), tuple(local.shape), offset, offset + valid)
        edges = [0, *sorted(min(c, local.numel()) for c in cuts), local.numel()]
        for start, stop in itertools.pairwise(edges):
            for at, size2, begin in rectangles(shard, start, stop):
                part = back[at[0] : at[0] + size2[0], at[1] : at[1] + size2[1]]
                assert (part == -1).all()
                part.copy_(local.reshape(-1)[begin : begin + part.numel()].view(size2))
    assert torch.equal(back, whole)
