"""Checkpoints: the curve goes on at another layout, bit for bit at the same one; faults leave the last good one."""

import itertools
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.engine.checkpoint.folder import INDEX, MANIFEST, STATE, damage, newest, problem, prune, resolve
from ptdp_core.engine.checkpoint.tensors import Pieces, Staging, rectangles
from ptdp_core.launch.local import RankError
from ptdp_core.layout import Parameter, ShardSpec
from tests.marks import by_default
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.jobs import in_ranks
from tests.small_disk import small_disk

BASE = {"B": 4, "layers": 4, "dropout": 0.1, "recompute": "none"}
SAVED = BASE | {"p": 2, "t": 2, "d": 2}


@pytest.fixture(scope="module", params=by_default([False, True], True), ids=["plain", "sharded"])
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    case = SAVED | {"sharded_optimizer": request.param}
    return folder, in_ranks(jobs.save_and_go_on, case, str(folder), False)[0]


@pytest.mark.parametrize("sharded", [False, True])
def test_at_the_same_layout_it_goes_on_bit_for_bit(saved, sharded):
    folder, expected = saved
    losses, progress = in_ranks(jobs.load_and_go_on, SAVED | {"sharded_optimizer": sharded}, str(folder))[0]
    assert losses == expected
    assert progress == {"step": 2, "consumed": 8, "seed": jobs.SEED, "updates": 2, "scale": 1.0, "good_steps": 0}


def test_with_dropout_the_curve_goes_on_at_another_layout(saved):
    """Masks depend on the step, the microbatch and (in attention) t, not on p, v, d or the sharding of anything."""
    folder, expected = saved
    for layout in ({"p": 2, "v": 2, "t": 2}, {"t": 2, "d": 2, "sharded_optimizer": True, "data_parallel": "torch"}):
        losses, _ = in_ranks(jobs.load_and_go_on, BASE | layout, str(folder))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


LAYOUTS = [
    {"p": 4, "t": 1, "d": 2},
    {},
    {"t": 4},
    {"p": 2, "c": 2, "d": 2, "sharded_optimizer": True},
    {"d": 4, "sharded_optimizer": True, "data_parallel": "torch", "bucket_mib": 0.002},
]


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_at_any_layout_the_curve_goes_on(sharded, tmp_path):
    plain = {"dropout": 0.0}
    case = SAVED | plain | {"sharded_optimizer": sharded}
    expected = in_ranks(jobs.save_and_go_on, case, str(tmp_path), False)[0]
    for layout in LAYOUTS:
        losses, _ = in_ranks(jobs.load_and_go_on, BASE | layout | plain, str(tmp_path))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixed_precision_keeps_master_weights(dtype, tmp_path):
    case = BASE | {"p": 2, "dtype": dtype, "dropout": 0.0}
    expected = in_ranks(jobs.save_and_go_on, case, str(tmp_path), False)[0]
    assert in_ranks(jobs.load_and_go_on, case, str(tmp_path))[0][0] == expected


def test_saving_in_the_background_is_the_same(tmp_path):
    case = BASE | {"p": 2, "d": 2}
    expected = in_ranks(jobs.save_and_go_on, case, str(tmp_path), True)[0]
    assert in_ranks(jobs.load_and_go_on, case, str(tmp_path))[0][0] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000002"]


@pytest.mark.parametrize("pinned", [False, True])
def test_staging_keeps_its_buffers_and_pins_those_of_a_gpu(pinned, monkeypatch):
    """What training overwrites after a copy does not change it; the next save uses the same memory."""
    asked, empty = [], torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *size, pin_memory, **how: asked.append(pin_memory) or empty(*size, **how)
    )
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None))
    staging = Staging(torch.device("cuda" if pinned else "cpu"))
    state, places = torch.arange(6.0), []
    for _ in range(2):
        before = state.clone()
        pieces = Pieces((2, 3))
        pieces.held[0, 0] = state.view(2, 3)
        staging.copy({"x": pieces})
        state += 1
        staging.wait()
        (copy,) = pieces.held.values()
        assert torch.equal(copy.view(-1), before)
        places.append(copy.data_ptr())
    assert places[0] == places[1] != state.data_ptr()
    assert asked == [pinned]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_s_staging_copies_before_training_goes_on():
    state = torch.arange(2.0**24, device="cuda")
    before, pieces = state.cpu(), Pieces((2**12, 2**12))
    pieces.held[0, 0] = state.view(2**12, 2**12)
    staging = Staging(torch.device("cuda"))
    staging.copy({"x": pieces})
    state += 1
    staging.wait()
    (copy,) = pieces.held.values()
    assert copy.is_pinned()
    assert torch.equal(copy.view(-1), before)


@pytest.mark.parametrize("who", by_default([0, 3], 3))
def test_a_crash_while_saving_leaves_the_checkpoint_before(who, tmp_path):
    with pytest.raises(RankError, match=f"rank {who} was killed by SIGKILL"):
        in_ranks(jobs.die_while_saving, BASE | {"p": 2, "t": 2}, str(tmp_path), who)
    last = newest(tmp_path)
    assert last.name == "step_00000001"
    _, progress = in_ranks(jobs.load_and_go_on, BASE | {"p": 2}, str(tmp_path))[0]
    assert progress["step"] == 1


FULL = [
    (place, ranks, background)
    for place in ("a limit", "200k", "1m", "4m", "12m")
    for ranks in (1, 4)
    for background in (False, True)
]


@pytest.mark.parametrize(
    ("place", "ranks", "background"), by_default(FULL, ("a limit", 1, False), ("a limit", 4, True), ("12m", 4, False))
)
def test_a_save_for_which_there_is_no_room(place, ranks, background, tmp_path):
    """On a file system of that size, or where one rank's files may have 100 KiB from the second save on."""
    folder, limit = tmp_path / "disk", 100 << 10
    case = BASE | {"hidden": 64, "vocab": 256} | ({"p": 2, "t": 2} if ranks == 4 else {})
    with nullcontext(True) if place == "a limit" else small_disk(folder, place) as made:
        if not made:
            pytest.skip("needs the right to mount a file system")
        with pytest.raises(RankError) as caught:
            in_ranks(jobs.save_until_it_fails, case, str(folder), background, limit if place == "a limit" else 0)
        assert caught.value.kind == "EngineUnavailableError"
        what = "file-size limit reached" if place == "a limit" else "no space left"
        last = newest(folder)
        message = caught.value.message
        assert message.startswith(f"{what} on save={str(folder)!r}: ")
        assert message.endswith(f"; the newest checkpoint is {last}" if last else "; it holds no checkpoint")
        assert (last is None) == (place in ("200k", "1m", "4m"))
        assert not list(folder.glob(".*"))  # the failed one is gone
        if last:
            _, progress = in_ranks(jobs.load_and_go_on, case, str(folder))[0]
            assert progress["step"] == int(last.name[-8:])


def save_twice(folder, case):
    in_ranks(jobs.die_while_saving, case, str(folder), 9)  # nobody dies
    return folder / "step_00000001", folder / "step_00000002"


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory):
    """A folder with two checkpoints of `BASE`, to be read only."""
    folder = tmp_path_factory.mktemp("saved_twice")
    save_twice(folder, BASE)
    return folder


@pytest.fixture
def two_checkpoints(saved_twice, tmp_path):
    """Two checkpoints of `BASE` in the test's own folder."""
    shutil.copytree(saved_twice, tmp_path, dirs_exist_ok=True)
    return tmp_path / "step_00000001", tmp_path / "step_00000002"


DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "zeroed": lambda data: data[:-4096] + bytes(4096) if len(data) > 4096 else bytes(len(data)),
    "one bit": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "garbage": lambda data: bytes(reversed(data)),
    "empty": lambda data: b"",
}


FILES = ("rank_00000.bin", INDEX, STATE, MANIFEST)
DAMAGED = [(name, how) for name in FILES for how in DAMAGE]
ONCE_EACH = (("rank_00000.bin", "one bit"), (INDEX, "garbage"), (STATE, "truncated"), (MANIFEST, "empty"))


@pytest.mark.parametrize(("name", "how"), by_default(DAMAGED, *ONCE_EACH))
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_whole(name, how, two_checkpoints, tmp_path):
    """The shards are only read by the ranks that load; everything else is looked at before."""
    first, second = two_checkpoints
    victim = second / name
    victim.write_bytes(DAMAGE[how](victim.read_bytes()))
    wrong = problem(second) or damage(second, [name])
    assert name in wrong
    with pytest.raises(RankError) as caught:
        in_ranks(jobs.load_and_go_on, BASE, str(second))
    assert caught.value.kind == "ValueError"
    assert caught.value.message == (
        f"load={str(second)!r} {wrong}; needs a whole checkpoint; try load={str(first)!r}, the newest before it"
    )
    assert problem(first) is None
    progress, notes = in_ranks(jobs.load_noting, BASE, str(tmp_path))[0]
    assert progress.step == 1
    assert notes == [f"passed over {second}, which {wrong}; going on from step_00000001"]


def test_all_ranks_say_which_shard_is_damaged(tmp_path):
    case = BASE | {"p": 2, "t": 2}
    _, second = save_twice(tmp_path, case)
    victim = second / "rank_00003.bin"
    victim.write_bytes(DAMAGE["one bit"](victim.read_bytes()))
    assert problem(second) is None  # a look at the folder does not read shards
    for _, notes in in_ranks(jobs.load_noting, case, str(tmp_path)):
        assert notes == [
            f"passed over {second}, which has rank_00003.bin with other contents than were saved; "
            "going on from step_00000001"
        ]


def test_lost_files(two_checkpoints, tmp_path):
    first, second = two_checkpoints
    (first / STATE).unlink()
    (second / MANIFEST).unlink()
    assert problem(first) == "lacks state.json"
    assert problem(second) == "has a manifest.json that is missing or damaged"
    with pytest.raises(ValueError, match=r"holds no whole checkpoint; needs step_\* inside; try the folder of a run"):
        resolve(tmp_path)
    with pytest.raises(RankError, match=r"step_00000002' has a manifest.json .*; try another: there is none bef"):
        in_ranks(jobs.load_noting, BASE, str(tmp_path))


@pytest.mark.parametrize(
    "change", [{"layers": 8}, {"B": 8}, {"seed": 7}, {"data": "other tokens"}], ids=lambda change: next(iter(change))
)
def test_a_checkpoint_of_another_run_is_refused(change, saved_twice):
    data = change.get("data", "tokens")
    case = BASE | {name: value for name, value in change.items() if name != "data"}
    with pytest.raises(RankError) as caught:
        in_ranks(jobs.load_noting, case, str(saved_twice), data)
    assert caught.value.kind == "ValueError"
    (name,) = change
    assert caught.value.message.startswith("data is not what load=" if name == "data" else f"{name}={change[name]}")
    assert "needs the same " in caught.value.message


def test_what_may_change_is_said(saved_twice):
    case = BASE | {"p": 2, "recompute": "full"}
    _, notes = in_ranks(jobs.load_noting, case, str(saved_twice), "tokens")[0]
    assert notes == ["changed since step_00000002 was saved: p 1 -> 2, recompute 'none' -> 'full'"]


def test_the_newest_stay(two_checkpoints, tmp_path):
    first, second = two_checkpoints
    damaged = tmp_path / "step_00000003"
    damaged.mkdir()
    prune(tmp_path, 0)
    prune(tmp_path, 2)
    assert {first, second, damaged} == set(tmp_path.iterdir())
    prune(tmp_path, 1)  # one that is not whole does not count as one of them
    assert {second, damaged} == set(tmp_path.iterdir())


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    with pytest.raises(
        RankError, match=r"layers\.2\.\S+ is not finite after step 1, and is not saved; needs"
    ) as caught:
        in_ranks(jobs.save_not_finite, BASE | {"p": 2}, str(tmp_path))
    assert caught.value.kind == "DivergedError"
    assert not list(tmp_path.iterdir())


@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    dim=st.sampled_from([None, 0, 1]),
    t=st.integers(1, 3),
    padding=st.integers(0, 7),
    cuts=st.lists(st.integers(0, 36), max_size=4),
)
def test_rectangles_cover_a_tensor_exactly_once(rows, columns, dim, t, padding, cuts):
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
            for place, size2, begin in rectangles(shard, start, stop):
                part = back[place[0] : place[0] + size2[0], place[1] : place[1] + size2[1]]
                assert (part == -1).all()
                part.copy_(local.reshape(-1)[begin : begin + part.numel()].view(size2))
    assert torch.equal(back, whole)
