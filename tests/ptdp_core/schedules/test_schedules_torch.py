"""Our tables against those of torch.distributed.pipelining, generated without a process group, and CSV both
ways."""

from functools import partial
from types import SimpleNamespace

import pytest

torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

from ptdp_core.schedules import (  # noqa: E402
    Action,
    Schedule,
    bubble_fraction,
    build,
    check_complete,
    check_order,
    check_progress,
    lower,
)

CASES = [(p, v) for p in (2, 3, 4, 8) for v in (2, 3, 4)]


def stages(p, v):
    """What a multi-stage schedule of torch reads from the stages of rank 0 while it builds its table."""
    return [
        SimpleNamespace(num_stages=p * v, group_size=p, group_rank=0, stage_index=c * p, submod=None) for c in range(v)
    ]


def torch_interleaved(p, m, v):
    return torch_schedules.ScheduleInterleaved1F1B(stages(p, v), m)


def table(order):
    """torch's table as ours, without the idle slots."""
    return tuple(tuple(Action.parse(str(a)) for a in order[rank] if a is not None) for rank in sorted(order))


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(("p", "v"), CASES)
def test_interleaved_equals_torch(p, v, k):
    assert build("interleaved", p, k * p, v).ranks == table(torch_interleaved(p, k * p, v).pipeline_order)


@pytest.mark.parametrize(("p", "v"), CASES)
def test_m_equal_p_differs_from_torch_only_in_running_all_forwards_first(p, v):
    """The authors' code has a branch of its own for m = p; torch keeps the general rule. Each kind's order is
    equal."""
    ours, theirs = build("interleaved", p, p, v).ranks, table(torch_interleaved(p, p, v).pipeline_order)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == tuple(a for kind in "FB" for a in other if a.kind == kind)
    assert ours != theirs
    # The last rank is where it shows most: torch's warm-up there is (v-1)p of the pv forward passes.
    assert [a.kind for a in theirs[-1]].index("B") == (v - 1) * p + 1
    assert [a.kind for a in ours[-1]].index("B") == p * v


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 7), (4, 8), (8, 16)])
def test_gpipe_equals_torch(p, m):
    theirs = SimpleNamespace(_num_stages=p, _n_microbatches=m)
    order = torch_schedules.ScheduleGPipe._get_pipeline_order(theirs)
    compute = {r: [a for a in row if a is None or a.is_compute_op] for r, row in order.items()}
    assert build("gpipe", p, m).ranks == table(compute)


@pytest.mark.parametrize(
    ("name", "p", "m", "v"),
    [
        *(("interleaved", *size) for size in ((2, 4, 2), (2, 2, 2), (4, 8, 3), (3, 12, 2))),
        *((name, *size, 1) for name in ("gpipe", "1f1b") for size in ((2, 4), (4, 8), (4, 2))),
        ("zb-h1", 4, 8, 1),
    ],
)
def test_torch_loads_our_csv(name, p, m, v, tmp_path):
    """torch validates the order and places sends and receives in it; nothing may be lost."""
    schedule = build(name, p, m, v)
    path = tmp_path / "schedule.csv"
    path.write_text(schedule.to_csv())
    runtime = torch_schedules._PipelineScheduleRuntime(stages(p, v), m)
    runtime._load_csv(str(path), format="compute_only")
    assert table(runtime.pipeline_order) == schedule.ranks
    lowered = runtime.pipeline_order_with_comms
    computed = {rank: [a for a in row if a.is_compute_op] for rank, row in lowered.items()}
    assert table(computed) == schedule.ranks


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3), (3, 12, 2)])
def test_we_load_torchs_csv(p, m, v, tmp_path):
    path = tmp_path / "schedule.csv"
    torch_interleaved(p, m, v)._dump_csv(str(path), format="compute_only")
    text = path.read_bytes().decode()
    assert ",," in text  # idle slots are empty cells
    loaded = Schedule.from_csv(text, "interleaved")
    check_complete(loaded)
    assert loaded == build("interleaved", p, m, v)


def test_torchs_lowered_csv_is_refused(tmp_path):
    path = tmp_path / "schedule.csv"
    torch_interleaved(2, 4, 2)._dump_csv(str(path), format="compute_comms")
    with pytest.raises(ValueError, match=r"cell='.*' at rank 0.*try exporting with format=\"compute_only\""):
        Schedule.from_csv(path.read_text(), "interleaved")


@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 7), (4, 4), (4, 16), (8, 16)])
def test_zb_h1_equals_torchs_generator_given_1f1bs_warm_up(p, m):
    """torch has no ZB-H1 with one stage per rank: its zero-bubble generator, with the warm-up that 1F1B has."""
    for rank in range(p):
        warmup, here = p - rank - 1, partial(lambda rank, _: rank, rank)
        theirs = torch_schedules._get_1f1b_rank_ops(
            1, p, warmup, m - warmup, warmup, rank, here, here, rank, enable_zero_bubble=True
        )
        assert build("zb-h1", p, m).ranks[rank] == table({0: theirs})[0]


@pytest.mark.parametrize(("p", "m", "v"), [(3, 6, 2), (4, 8, 2), (4, 8, 3)])
def test_torchs_interleaved_zero_bubble_table_loads_and_runs(p, m, v, tmp_path):
    """Split backward passes from elsewhere: read, checked, executed, and faster than the same without the split."""
    path = tmp_path / "schedule.csv"
    torch_schedules.ScheduleInterleavedZeroBubble(stages(p, v), m)._dump_csv(str(path), format="compute_only")
    loaded = Schedule.from_csv(path.read_text(), "torch")
    assert {action.kind for action in loaded.ranks[0]} == {"F", "I", "W"}
    check_complete(loaded)
    program = lower(loaded, "overlapped")
    check_order(program)
    check_progress(program)
    assert bubble_fraction(loaded, 1, 2, 1) < bubble_fraction(build("interleaved", p, m, v), 1, 2)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (3, 8, 3), (4, 6, 2), (4, 12, 3)])
def test_split_interleaving_equals_torch(p, m, v):
    theirs = torch_schedules.ScheduleInterleavedZeroBubble(stages(p, v), m).pipeline_order
    assert build("interleaved-zb", p, m, v).ranks == table(theirs)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 3, 2), (4, 5, 3)])
def test_breadth_first_differs_from_torch_only_in_the_order_of_microbatches_backward(p, m, v):
    """torch runs the backward passes of a chunk in reverse."""
    theirs = table(torch_schedules.ScheduleLoopedBFS(stages(p, v), m).pipeline_order)
    for ours, row in zip(build("breadth-first", p, m, v).ranks, theirs, strict=True):
        assert ours == tuple(a if a.kind == "F" else a._replace(microbatch=m - 1 - a.microbatch) for a in row)
