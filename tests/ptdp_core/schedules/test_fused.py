"""Fused pairs of an F and a B: their text, what is checked of them, where their messages go, and how long they take."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from ptdp_core.schedules import (
    MODES,
    Action,
    Exchange,
    Fused,
    Schedule,
    build,
    check_complete,
    execute,
    execute_program,
    lower,
    message_into,
    message_out_of,
)
from ptdp_core.schedules.files import read_schedule

NAME = "dualpipev-overlap"
PAIR = Fused(Action("F", 3, 1), Action("B", 4, 0))


def test_the_text_is_torchs_and_is_read_again():
    assert str(PAIR) == "(3F1;4B0)OVERLAP_F_B"
    table = build(NAME, 3, 6, 2)
    text = table.to_csv()
    assert "(5F3;0B0)OVERLAP_F_B" in text
    assert Schedule.from_csv(text, NAME) == table
    assert Schedule.from_csv(text.replace(";", " ; "), NAME) == table
    flat = Schedule.from_csv("\n".join(",".join(map(str, row)) for row in table.ranks), NAME)
    assert flat.ranks == table.ranks
    assert flat != table
    assert not flat.fused


@pytest.mark.parametrize(
    "cell", ["(3F1)OVERLAP_F_B", "(3B1;4F0)OVERLAP_F_B", "(3F1;4I0)OVERLAP_F_B", "(3F1;4B0;4B1)OVERLAP_F_B", "(;)X"]
)
def test_no_other_pairs_are_read(cell):
    with pytest.raises(ValueError, match=r"^cell='.*' at rank 0, column 1 is not a forward or \(split\) backward pass"):
        Schedule.from_csv(f"0F0,{cell}", "file")


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 7), (4, 8), (4, 12)])
def test_the_table_is_dualpipevs_order_and_torchs_pairs(p, m, tmp_path):
    table = build(NAME, p, m, 2)
    assert table.ranks == build("dualpipev", p, m, 2).ranks
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    stages = [
        SimpleNamespace(num_stages=2 * p, group_size=p, group_rank=0, stage_index=c * (2 * p - 1), submod=None)
        for c in (0, 1)
    ]
    path = tmp_path / "torch.csv"
    torchs = torch_schedules.ScheduleDualPipeV(stages, m)
    torchs._dump_csv(str(path), format="compute_only")
    assert Schedule.from_csv(path.read_text(), NAME) == table
    path.write_text(table.to_csv())
    runtime = torch_schedules._PipelineScheduleRuntime(stages, m)
    runtime._load_csv(str(path), format="compute_only")
    for rank, row in enumerate(table.cells):
        assert [str(cell) for cell in row] == [str(action) for action in runtime.pipeline_order[rank]]


def test_a_pair_of_other_passes_is_refused():
    table = build("1f1b", 2, 4)
    second = table.ranks[1]  # 1F0 1B0 1F1 1B1 ...
    for fused, beside in ((second[0], "1B0"), (second[1], "1F1"), (table.ranks[0][0], "0F1"), (second[-1], "nothing")):
        wrong = replace(table, fused=frozenset((fused,)))
        message = rf"action={fused} at rank \d, position \d, runs together with {beside}; needs an F and then a B"
        with pytest.raises(ValueError, match=message):
            check_complete(wrong)
    check_complete(replace(table, fused=frozenset((table.ranks[0][1],))))
    with pytest.raises(
        ValueError, match=r"exchanges='neighbours' of a schedule with fused passes; needs those derived"
    ):
        lower(replace(table, fused=frozenset((table.ranks[0][1],))), "blocking")


def test_pairs_that_wait_for_each_other_are_found(tmp_path):
    """Fused with the F after it, rank 1's first B would wait for rank 0's second F, which waits for that B."""
    file = tmp_path / "circle.csv"
    file.write_text("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")
    with pytest.raises(ValueError, match=r"rank 0 at \(?0F1.*rank 1 at \(?1F1.*needs an order in which every input"):
        read_schedule(file, {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 8), (4, 8)])
def test_inputs_come_before_a_pair_and_outputs_go_after_it(p, m, mode):
    table = build(NAME, p, m, 2)
    pairs = 0
    for row in lower(table, mode).ranks:
        received, made = set(), set()
        for instruction in row:
            if isinstance(instruction, Exchange):
                assert set(instruction.sends) <= made
                received.update(instruction.receives)
            else:
                inputs = {message_into(action, table.placement) for action in instruction.actions} - {None}
                assert inputs <= received
                made |= {message_out_of(action, table.placement) for action in instruction.actions}
                pairs += len(instruction.actions) == 2
    assert pairs == len(table.fused) > p


def test_both_passes_take_as_long_as_one_after_the_other():
    table = build(NAME, 3, 6, 2)
    for rows in (execute(table, 2, 5, 2), execute_program(lower(table, "overlapped"), 2, 5, 2)):
        for row in rows:
            for event, following in pairwise(row):
                if event.action in table.fused:
                    assert (event.start, event.end) == (following.start, following.end)
                    assert event.end - event.start == 2 + 5
                    assert following.action.kind == "B"
