"""Split backward passes: ZB-H1 against the formulas of Qi et al. and torch's own order, and the checks on I and W."""

from fractions import Fraction

import pytest

from ptdp_core.schedules import (
    MODES,
    Action,
    Compute,
    Schedule,
    bubble_fraction,
    build,
    check_complete,
    definition,
    execute,
    execute_program,
    lower,
    peak_stash,
    stash_fronts,
)
from tests.ptdp_core.schedules.cases import texts, with_row

SIZES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 5, 8, 16, 19)]
# t_f, t_b and t_w, with t_w at most t_f and at most t_b - t_w
TIMES = [
    (1, 2, 1), (1, 3, 1), (3, 4, 2), (5, 4, 1), (2, 2, 0), (Fraction(2, 3), Fraction(7, 5), Fraction(1, 2)),
]  # fmt: skip


def makespan(rows):
    return max(row[-1].end for row in rows)


def zb_h1_bubble(p, m, t_f, t_b, t_w):
    formula = definition("zb-h1").bubble
    return formula(p, m, 1, t_f, t_b, t_w)


def test_order():
    """Rank r's W follow its I at a distance of r microbatches."""
    assert texts(build("zb-h1", 3, 4)) == [
        "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
        "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3",
        "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3",
    ]


def test_without_its_w_it_is_1f1b():
    for p, m in SIZES:
        kept = tuple(tuple(action.output for action in row if action.kind != "W") for row in build("zb-h1", p, m).ranks)
        assert kept == build("1f1b", p, m).ranks


@pytest.mark.parametrize("times", TIMES)
def test_bubble_is_qi_et_als_exactly_in_every_mode(times):
    """(p-1)(t_f + t_i - t_w) for m >= p; smaller than 1F1B's (p-1)(t_f + t_b) by 2 t_w a rank."""
    t_f, t_b, t_w = times
    for p, m in SIZES:
        schedule = build("zb-h1", p, m)
        bubble = (p - 1) * (t_f + (t_b - t_w) - t_w) if m >= p else zb_h1_bubble(p, m, *times)
        assert zb_h1_bubble(p, m, *times) == bubble
        ideal = m * (t_f + t_b)
        assert makespan(execute(schedule, *times)) == ideal + bubble
        assert bubble_fraction(schedule, *times) == Fraction(bubble) / ideal
        for mode in MODES:
            assert makespan(execute_program(lower(schedule, mode), *times)) == ideal + bubble, (p, m, mode)
        if m >= p:
            assert makespan(execute(build("1f1b", p, m), t_f, t_b)) - ideal - bubble == 2 * (p - 1) * t_w


def test_one_third_of_1f1bs_bubble_with_equal_passes():
    assert bubble_fraction(build("1f1b", 4, 8), 1, 2) == 3 * bubble_fraction(build("zb-h1", 4, 8), 1, 2, 1)
    assert bubble_fraction(build("zb-h1", 4, 8), 1, 2) == Fraction(1, 8)  # half of t_b is t_w if not given


@pytest.mark.parametrize("times", [(1, 4, 2), (2, 4, 3)])
def test_weights_longer_than_the_other_passes_leave_a_larger_bubble(times):
    assert makespan(execute(build("zb-h1", 4, 8), *times)) > 8 * (times[0] + times[1]) + zb_h1_bubble(4, 8, *times)


def test_one_microbatch_has_nothing_to_fill_its_bubble_with():
    assert zb_h1_bubble(4, 1, 1, 2, 1) == makespan(execute(build("zb-h1", 4, 1), 1, 2, 1)) - 3 == 6


def test_peak_stash_is_1f1bs_peak_on_every_rank():
    for p, m in SIZES:
        assert peak_stash(build("zb-h1", p, m)) == [min(m, p)] * p
        assert max(peak_stash(build("1f1b", p, m))) == min(m, p)


def test_stash_fronts():
    """After an F, rank r stashes p - r and owes r W; after the I that follows, one less and one more."""
    assert stash_fronts(build("zb-h1", 4, 9)) == [[(4 - r, r), (3 - r, r + 1)] for r in range(4)]
    assert stash_fronts(build("1f1b", 4, 9)) == [[(4 - r, 0)] for r in range(4)]


def test_blocking_groups_come_after_the_w_between_their_messages():
    row = [str(i) for i in lower(build("zb-h1", 3, 5), "blocking").ranks[1]]
    assert row[10:15] == [
        "compute 1I1",
        "compute 1W0",
        "send 1B1 (rank 1 to 0), receive 0F3 (rank 0 to 1)",
        "compute 1F3",
        "send 1F3 (rank 1 to 2), receive 2B2 (rank 2 to 1)",
    ]
    # In the cool-down the previous rank computes nothing for us: the gradient goes before the W.
    assert row[-7:] == [
        "send 1B3 (rank 1 to 0)",
        "compute 1W2",
        "receive 2B4 (rank 2 to 1)",
        "compute 1I4",
        "send 1B4 (rank 1 to 0)",
        "compute 1W3",
        "compute 1W4",
    ]


def test_w_needs_no_message_and_i_sends_the_gradient():
    for mode in MODES:
        for split, whole in zip(
            lower(build("zb-h1", 4, 6), mode).ranks, lower(build("1f1b", 4, 6), mode).ranks, strict=True
        ):
            kept, plain = (
                [message for i in row if not isinstance(i, Compute) for message in (*i.sends, *i.receives)]
                for row in (split, whole)
            )
            assert sorted(kept) == sorted(plain)


def test_mutations_of_split_passes_are_caught():
    schedule = build("zb-h1", 2, 2)
    first, i, second, *rest = schedule.ranks[1]  # 1F0 1I0 1F1 1I1 1W0 1W1
    w = Action("W", 1, 0)
    with pytest.raises(ValueError, match=r"action=1W0 at rank 1, position 1, comes before its input gradient; needs I"):
        check_complete(with_row(schedule, 1, (first, w, i, second, *(a for a in rest if a != w))))
    with pytest.raises(ValueError, match=r"action=1I0 at rank 1, position 0, comes before its forward pass; needs F"):
        check_complete(with_row(schedule, 1, (i, first, second, *rest)))
    with pytest.raises(ValueError, match=r"action=1W0 is missing from rank 1"):
        check_complete(with_row(schedule, 1, tuple(a for a in schedule.ranks[1] if a != w)))
    with pytest.raises(ValueError, match=r"action=1B0 is missing from rank 1"):
        check_complete(with_row(schedule, 1, tuple(a for a in schedule.ranks[1] if a not in (w, i))))
    for twice in (Action("B", 1, 0), i, w):
        with pytest.raises(ValueError, match=rf"action={twice} at rank 1, position 6, runs twice"):
            check_complete(with_row(schedule, 1, (*schedule.ranks[1], twice)))
    both = build("1f1b", 2, 2)
    with pytest.raises(ValueError, match=r"action=1I0 at rank 1, position 4, runs twice"):
        check_complete(with_row(both, 1, (*both.ranks[1], i)))
    with pytest.raises(ValueError, match="stuck=2 ranks wait for each other: rank 0 at 0I0; rank 1 at 1W0"):
        execute(with_row(schedule, 1, (first, w, i, second, *(a for a in rest if a != w))), 1, 2)


def test_whole_and_split_backward_passes_may_mix():
    """Rank 0 may as well run its I and W as one: its gradient goes nowhere."""
    schedule = build("zb-h1", 3, 4)
    whole = tuple(a.output for a in schedule.ranks[0] if a.kind != "W")
    mixed = with_row(schedule, 0, whole)
    check_complete(mixed)
    assert makespan(execute(mixed, 1, 2, 1)) == makespan(execute(schedule, 1, 2, 1))
    assert makespan(execute_program(lower(mixed, "blocking"), 1, 2, 1)) == makespan(execute(schedule, 1, 2, 1))


def test_chunks_and_split_passes_are_placed_in_blocking_groups():
    split = Schedule.from_csv("0F0,1F0,1I0,1W0,0I0,0W0", "file")
    check_complete(split)
    for mode in MODES:
        assert execute_program(lower(split, mode), 1, 2)[0][-1].end == 6
