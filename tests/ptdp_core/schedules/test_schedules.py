"""Schedules, their lowering and their checks, against the paper's formulas and against mutations of
themselves."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptdp_core.schedules import (
    MODES,
    Action,
    Compute,
    Exchange,
    Schedule,
    bubble_fraction,
    build,
    check_complete,
    check_groups,
    check_order,
    check_progress,
    execute,
    execute_program,
    looped,
    lower,
    message_into,
    peak_stash,
    wave,
)
from tests.ptdp_core.schedules.cases import sizes, texts, with_row

COSTS = [(1, 1), (1, 2), (3, 1), (Fraction(2, 3), Fraction(7, 5))]
FLAT = [(p, m, 1) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 5, 8, 17)]
CHUNKED = [(p, k * p, v) for p in (2, 3, 4, 8) for v in (2, 3, 4) for k in (1, 2, 3)]


def schedules():
    """Any schedule there is, at any size."""
    return sizes().map(lambda size: build(*size))


def instructions(program, rank):
    return [str(instruction) for instruction in program.ranks[rank]]


# --- tables -----------------------------------------------------------------------------------------------


def test_gpipe_runs_all_forwards_then_all_backwards():
    assert texts(build("gpipe", 2, 3)) == ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"]


def test_1f1b_warms_up_one_less_on_every_rank():
    assert texts(build("1f1b", 3, 4)) == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_1f1b_with_fewer_microbatches_than_ranks_has_no_steady_state_on_the_first():
    assert texts(build("1f1b", 4, 2)) == ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1", "3F0 3B0 3F1 3B1"]


def test_interleaved_matches_the_papers_figure():
    """Figure 4, bottom: p = 4, m = 8, v = 2; its devices 1 and 4 up to the second backward pass."""
    first, *_, last = (text.split() for text in texts(build("interleaved", 4, 8, 2)))
    assert first[:10] == ["0F0", "0F1", "0F2", "0F3", "4F0", "4F1", "4F2", "4F3", "0F4", "0F5"]
    assert first[10:14] == ["0F6", "4B0", "0F7", "4B1"]
    assert last[:8] == ["3F0", "3F1", "3F2", "3F3", "7F0", "7B0", "7F1", "7B1"]


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [2, 3])
def test_interleaved_with_m_equal_p_runs_all_forwards_first(p, v):
    for actions in build("interleaved", p, p, v).ranks:
        assert "".join(action.kind for action in actions) == "F" * (p * v) + "B" * (p * v)


def test_build_returns_the_same_object():
    assert build("1f1b", 4, 8) is build("1f1b", 4, 8)


def test_stages_live_on_rank_stage_mod_p():
    schedule = build("interleaved", 4, 8, 3)
    placement = schedule.placement
    assert schedule.stages == 12
    assert [(placement.ranks[g], placement.chunk_of(g)) for g in (0, 3, 4, 11)] == [(0, 0), (3, 0), (0, 1), (3, 2)]
    assert (placement.first, placement.last) == (0, 3)


def test_a_wave_goes_down_the_ranks_and_up_again():
    placement = wave(3, 3)
    assert placement.stages == ((0, 5, 6), (1, 4, 7), (2, 3, 8))
    assert placement.boundaries == ((0, 1), (1, 2), (2, 2), (2, 1), (1, 0), (0, 0), (0, 1), (1, 2))
    # Rank 1 exchanges over all of its six boundaries, activations and gradients; rank 0 over three of five.
    assert placement.sends == (3, 6, 3)
    assert looped(3, 2).sends == (3, 4, 3)


# --- bubble and memory, the paper's formulas --------------------------------------------------------------


@pytest.mark.parametrize("t", COSTS)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_bubble_is_p_minus_1_over_vm(name, t):
    for p, m, v in CHUNKED if name == "interleaved" else FLAT:
        table = build(name, p, m, v)
        for runs in (table, *(lower(table, mode) for mode in MODES)):
            assert bubble_fraction(runs, *t) == Fraction(p - 1, v * m), (p, m, v)


def test_overlapped_program_runs_as_the_table():
    for schedule in (build("1f1b", 4, 7), build("gpipe", 3, 5), build("interleaved", 4, 8, 3)):
        assert execute_program(lower(schedule, "overlapped"), 2, 3) == execute(schedule, 2, 3)


def test_spans_do_not_overlap_and_respect_every_dependency():
    schedule = build("interleaved", 3, 6, 2)
    timeline = execute(schedule, 2, 5)
    ends = {span.action: span.end for spans in timeline for span in spans}
    starts = {span.action: span.start for spans in timeline for span in spans}
    for spans in timeline:
        assert all(a.end <= b.start for a, b in pairwise(spans))
    for action, start in starts.items():
        kind, stage, microbatch = action
        assert ends[action] - start == (2 if kind == "F" else 5)
        before = Action(kind, stage - 1 if kind == "F" else stage + 1, microbatch)
        assert start >= ends.get(before, 0)
        assert kind == "F" or start >= ends[Action("F", stage, microbatch)]


def test_peak_stash_of_interleaved():
    for p, m, v in CHUNKED:
        first = Fraction(peak_stash(build("interleaved", p, m, v))[0], v)
        assert first == (m if m == p else p * (1 + Fraction(p - 1, p * v))), (p, m, v)


# --- lowering ---------------------------------------------------------------------------------------------


def test_blocking_1f1b_joins_send_forward_with_receive_backward():
    program = lower(build("1f1b", 3, 3), "blocking")
    assert instructions(program, 1) == [
        "receive 0F0 (rank 0 to 1)",
        "compute 1F0",
        "send 1F0 (rank 1 to 2)",
        "receive 0F1 (rank 0 to 1)",
        "compute 1F1",
        "send 1F1 (rank 1 to 2), receive 2B0 (rank 2 to 1)",
        "compute 1B0",
        "send 1B0 (rank 1 to 0), receive 0F2 (rank 0 to 1)",
        "compute 1F2",
        "send 1F2 (rank 1 to 2), receive 2B1 (rank 2 to 1)",
        "compute 1B1",
        "send 1B1 (rank 1 to 0)",
        "receive 2B2 (rank 2 to 1)",
        "compute 1B2",
        "send 1B2 (rank 1 to 0)",
    ]


def test_blocking_interleaved_exchanges_four_ways_once_per_pair():
    program = lower(build("interleaved", 4, 8, 2), "blocking")
    exchanges = [i for i in program.ranks[1] if isinstance(i, Exchange)]
    assert max(len(e.sends) for e in exchanges) == max(len(e.receives) for e in exchanges) == 2
    for first, second in pairwise(program.ranks[1]):
        assert not (isinstance(first, Exchange) and isinstance(second, Exchange))
    # Chunk 0 of the first rank receives no activation, and the last chunk of the last rank sends none.
    assert str(program.ranks[0][0]) == "compute 0F0"
    sends = [message for i in program.ranks[3] if isinstance(i, Exchange) for message in i.sends]
    assert not [message for message in sends if message.kind == "F" and message.stage == 7]


def test_overlapped_posts_receives_one_action_ahead_and_sends_right_after():
    program = lower(build("1f1b", 2, 3), "overlapped")
    assert instructions(program, 1) == [
        "receive 0F0 (rank 0 to 1)",
        "compute 1F0",
        "receive 0F1 (rank 0 to 1)",
        "compute 1B0",
        "send 1B0 (rank 1 to 0)",
        "compute 1F1",
        "receive 0F2 (rank 0 to 1)",
        "compute 1B1",
        "send 1B1 (rank 1 to 0)",
        "compute 1F2",
        "compute 1B2",
        "send 1B2 (rank 1 to 0)",
    ]


@given(schedules())
@settings(max_examples=60, deadline=None)
def test_overlapped_needs_two_receive_buffers_per_direction(schedule):
    """Two for each chunk where what several stages send comes from one rank, and is used in another order."""
    most = 2 * schedule.v if schedule.exchanges == "derived" else 2
    for row in lower(schedule, "overlapped").ranks:
        live = {"F": 0, "B": 0}
        for instruction in row:
            if isinstance(instruction, Compute):
                for message in filter(None, (message_into(a, schedule.placement) for a in instruction.actions)):
                    live[message.kind] -= 1
            else:
                for message in instruction.receives:
                    live[message.kind] += 1
            assert max(live.values()) <= most
        assert set(live.values()) == {0}


@pytest.mark.parametrize(("p", "m", "v"), [case for case in CHUNKED if case[1] > case[0]])
def test_blocking_interleaved_groups_meet_on_one_diagonal(p, m, v):
    """The reason why just-in-time receives cannot deadlock: sender and receiver agree on (slots done) +
    rank."""
    sent = {}
    received = {}
    for rank, row in enumerate(lower(build("interleaved", p, m, v), "blocking").ranks):
        slots = 0
        for position, instruction in enumerate(row):
            if isinstance(instruction, Exchange):
                sent.update(dict.fromkeys(instruction.sends, slots + rank))
                received.update(dict.fromkeys(instruction.receives, slots + rank))
            else:
                after = row[position + 1 : position + 2]
                # A pair is two computations without an exchange between them.
                slots += not (after and isinstance(after[0], Compute) and after[0].actions[0].kind == "B")
    assert sent == received


# --- checks accept what build makes -----------------------------------------------------------------------


@given(schedules(), st.sampled_from(MODES))
@settings(max_examples=150, deadline=None)
def test_every_schedule_is_complete_ordered_and_runs(schedule, mode):
    check_complete(schedule)
    program = lower(schedule, mode)
    check_order(program)
    check_progress(program)
    if mode == "blocking":
        check_groups(program)
    computed = tuple(tuple(i.cell for i in row if isinstance(i, Compute)) for row in program.ranks)
    assert computed == schedule.cells


@given(schedules())
@settings(max_examples=60, deadline=None)
def test_csv_round_trip(schedule):
    assert Schedule.from_csv(schedule.to_csv(), schedule.name) == schedule


@given(st.sampled_from("FBIW"), st.integers(0, 999), st.integers(0, 9999))
def test_action_text_round_trip(kind, stage, microbatch):
    assert Action.parse(str(Action(kind, stage, microbatch))) == Action(kind, stage, microbatch)


# --- checks reject mutations ------------------------------------------------------------------------------


def swap_actions(schedule, rank, i, j):
    row = list(schedule.ranks[rank])
    row[i], row[j] = row[j], row[i]
    return with_row(schedule, rank, row)


def test_backward_before_its_forward_is_caught():
    with pytest.raises(ValueError, match=r"action=1B0 at rank 1, position 0, comes before.*try 1F0 first"):
        check_complete(swap_actions(build("1f1b", 2, 2), 1, 0, 1))


def test_missing_repeated_misplaced_and_foreign_actions_are_caught():
    schedule = build("interleaved", 2, 4, 2)
    row = list(schedule.ranks[1])
    with pytest.raises(ValueError, match=rf"action={row[-1]} is missing from rank 1"):
        check_complete(with_row(schedule, 1, row[:-1]))
    with pytest.raises(ValueError, match=rf"action={row[0]} at rank 1, position {len(row)}, runs twice"):
        check_complete(with_row(schedule, 1, [*row, row[0]]))
    with pytest.raises(ValueError, match=r"action=0F0 at rank 1, position 0, is on a wrong rank.*try rank 0"):
        check_complete(with_row(schedule, 1, [Action("F", 0, 0), *row]))
    for foreign in (Action("F", 9, 0), Action("F", 1, 4), Action("U", 1, 0)):
        with pytest.raises(ValueError, match=rf"action={foreign} at rank 1, position 0, is not of this schedule"):
            check_complete(with_row(schedule, 1, [foreign, *row]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", [("gpipe", 3, 4, 1), ("interleaved", 2, 4, 2), ("interleaved", 4, 8, 2)])
def test_two_receives_swapped_are_caught_by_order(case, mode):
    """The silent bug: two messages of one pair of ranks, received in the other order."""
    program = lower(build(*case), mode)
    row = list(program.ranks[1])
    receiving = [i for i, x in enumerate(row) if isinstance(x, Exchange) and x.receives and x.receives[0].source == 0]
    i, j = receiving[1], receiving[2]
    a, b = row[i], row[j]
    row[i] = Exchange(a.sends, (b.receives[0], *a.receives[1:]))
    row[j] = Exchange(b.sends, (a.receives[0], *b.receives[1:]))
    with pytest.raises(ValueError, match=r"ranks=0->1 disagree on message \d+: sent .*received") as caught:
        check_order(with_row(program, 1, row))
    assert str(a.receives[0]) in str(caught.value)
    assert str(b.receives[0]) in str(caught.value)


def test_p2_group_with_receives_in_the_other_order_is_caught():
    """With p = 2 an activation and a gradient come from the same rank in one group: their order in it
    counts."""
    program = lower(build("interleaved", 2, 4, 2), "blocking")
    row = list(program.ranks[0])
    i, group = next((i, x) for i, x in enumerate(row) if isinstance(x, Exchange) and len(x.receives) == 2)
    row[i] = Exchange(group.sends, group.receives[::-1])
    with pytest.raises(ValueError, match="ranks=1->0 disagree"):
        check_order(with_row(program, 0, row))


def test_group_that_meets_two_is_caught():
    """Both orders agree and nothing deadlocks, but one rank's group is two groups on the other."""
    program = lower(build("gpipe", 2, 2), "blocking")
    check_groups(program)
    row = list(program.ranks[0])
    i = next(i for i, (a, b) in enumerate(pairwise(row)) if isinstance(a, Exchange) and isinstance(b, Exchange))
    send, receive = row[i : i + 2]
    row[i : i + 2] = [Exchange(send.sends, receive.receives)]
    joined = with_row(program, 0, row)
    check_order(joined)
    check_progress(joined)
    with pytest.raises(ValueError, match=r"ranks=0,1 disagree on group 1: rank 0 has send 0F1 .*receive 1B0"):
        check_groups(joined)


def test_missing_receive_is_caught_by_order_and_by_progress():
    program = lower(build("1f1b", 2, 2), "blocking")
    broken = with_row(program, 1, list(program.ranks[1][1:]))
    with pytest.raises(ValueError, match=r"ranks=0->1 disagree on message 0: sent 0F0 .*received 0F1"):
        check_order(broken)
    with pytest.raises(ValueError, match=r"rank 0 at instruction 1, send 0F0.*rank 1 at instruction 0, compute 1F0"):
        check_progress(broken)


@pytest.mark.parametrize("rank", [0, 1], ids=["not sent", "not received"])
def test_a_last_message_of_one_side_only_is_caught(rank):
    """All messages before it agree, so that only the lengths differ."""
    program = lower(build("1f1b", 2, 2), "blocking")
    row = list(program.ranks[rank])
    side = "sends" if rank == 0 else "receives"
    i = max(i for i, x in enumerate(row) if isinstance(x, Exchange) and getattr(x, side))
    group = row[i]
    row[i] = Exchange((), group.receives) if rank == 0 else Exchange(group.sends, ())
    lacking = "sent nothing" if rank == 0 else "received nothing"
    with pytest.raises(ValueError, match=rf"ranks=0->1 disagree on message 1: .*{lacking}"):
        check_order(with_row(program, rank, row))


def test_deadlock_names_the_stuck_instructions():
    """Send and receive of a group taken apart, both ranks sending first: the classic deadlock of blocking
    sends."""
    program = lower(build("1f1b", 2, 3), "blocking")
    broken = program
    for rank in (0, 1):
        row = list(program.ranks[rank])
        i = next(i for i, x in enumerate(row) if isinstance(x, Exchange) and x.sends and x.receives)
        group = row[i]
        row[i : i + 1] = [Exchange(group.sends, ()), Exchange((), group.receives)]
        broken = with_row(broken, rank, row)
    check_order(broken)
    with pytest.raises(
        ValueError, match=r"stuck=2 ranks.*rank 0 at instruction \d+, send 0F1 .*rank 1 at instruction \d+, send 1B0 "
    ):
        check_progress(broken)


def test_sending_before_computing_is_caught():
    program = lower(build("gpipe", 2, 1), "overlapped")
    row = list(program.ranks[0])
    i = next(i for i, x in enumerate(row) if isinstance(x, Exchange) and x.sends)
    row.insert(0, row.pop(i))
    with pytest.raises(ValueError, match=r"message=0F0 .*sent at instruction 0 of rank 0, before it exists"):
        check_progress(with_row(program, 0, row))


def test_an_order_that_cannot_run_is_caught_by_execution():
    swapped = swap_actions(build("1f1b", 2, 2), 0, 0, 2)
    with pytest.raises(ValueError, match=r"stuck=2 ranks.*rank 0 at 0B0; rank 1 at 1F0"):
        execute(swapped, 1, 1)


def objection(schedule, mode):
    """What the checks say about a schedule and its lowering; empty if nothing."""
    try:
        check_complete(schedule)
        program = lower(schedule, mode)
        check_order(program)
        check_progress(program)
    except ValueError as error:
        return str(error)
    return ""


@given(schedules(), st.data())
@settings(max_examples=80, deadline=None)
def test_any_two_actions_swapped_are_noticed_or_harmless(schedule, data):
    """Either a check objects, in the form of all our errors, or the table still runs."""
    rank = data.draw(st.integers(0, schedule.p - 1))
    position = st.integers(0, len(schedule.ranks[rank]) - 1)
    swapped = swap_actions(schedule, rank, data.draw(position), data.draw(position))
    for mode in MODES:
        message = objection(swapped, mode)
        if message:
            assert "; needs " in message
            assert "; try " in message
        else:
            execute(swapped, 1, 1)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 20), (16, 36)])
def test_dualpipe_has_on_every_rank_the_passes_of_dualpipev_on_half_of_the_ranks(p, m):
    """By the eight steps of DualPipe's published code, of rank r or p-1-r; a digit is a direction, there a chunk."""
    table = build("dualpipev", p // 2, m // 2, 2)
    for rank, (actions, stages) in enumerate(zip(table.ranks, table.placement.stages, strict=True)):
        rest, split = p // 2 - rank - 1, rank + 1
        steps = [
            *["F0"] * (2 * rest),
            *["F0", "F1"] * (rank + 1),
            *["I1", "W", "F1"] * rest,
            *["F0", "B1", "F1", "B0"] * (m // 2 - p + rank + 1),
            *["B1", "F1", "B0"] * rest,
            *[("B" if k < split else "I") + "10"[k % 2] for k in range(2 * (rank + 1))],
            *["W", "I0"] * rest,
            *["W"] * (rank + 1),
        ]
        assert [kind if kind == "W" else f"{kind}{stages.index(stage)}" for kind, stage, _ in actions] == steps
