"""The event-driven executor: against the exact reference execution, and long schedules against stepped ones."""

from dataclasses import replace
from operator import ge

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptdp_core.schedules import Fused, build, definition, execute_program, lower, names, stash_fronts
from ptdp_core.simulator import steady_state
from ptdp_core.simulator.executor import Costs, compile_blocking, execute_blocking
from tests.ptdp_core.schedules.cases import existing, sizes

pytestmark = pytest.mark.usefixtures("toys_registered")


def free_messages(stages, forward, backward, weights):
    return Costs(forward, backward, ([0] * stages, [0] * stages), gather=0, exchange=0, weight_gradient=weights)


@given(sizes(range(1, 7)), st.integers(1, 9), st.integers(1, 9), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_free_messages_give_the_reference_execution(case, t_f, t_i, t_w):
    name, p, m, v = case
    t_b = t_i + t_w
    program = lower(build(name, p, m, v), "blocking")
    free = free_messages(p * v, [t_f] * p * v, [t_b] * p * v, [t_w] * p * v)
    assert steady_state.pipeline_timeline(name, p, m, v, free) == execute_program(program, t_f, t_b, t_w)


def test_message_times_by_hand():
    """p = 2, m = 1: forward 10, message 3 (+ 1 on the host, + 2 to gather), forward 20, backward 30, message, 40."""
    events = compile_blocking(build("1f1b", 2, 1))
    costs = Costs([10, 20], [40, 30], ([3, 99], [99, 99]), gather=2, exchange=1)
    arrived, _ = execute_blocking(events, costs)
    # the sender pays no gather, but posts and waits
    ends = [10 + (3 + 1 + 2) + 20 + 30 + (3 + 1 + 2) + 40, 10 + (3 + 1 + 2) + 20 + 30 + (3 + 1)]
    assert [arrived[steps[-1]] for steps in events.ranks] == ends


def test_two_messages_the_same_way_take_the_shared_time():
    """In the steady state of the interleaved schedule a rank sends both ways at once (p > 2)."""
    p, m, v = 4, 8, 2
    slow = Costs([10] * 8, [20] * 8, ([1] * p * v, [5] * p * v), 0, 0)
    fast = Costs([10] * 8, [20] * 8, ([1] * p * v, [1] * p * v), 0, 0)
    assert max(steady_state.flush("interleaved", p, m, v, slow).ends) > max(
        steady_state.flush("interleaved", p, m, v, fast).ends
    )
    assert (
        steady_state.flush("1f1b", p, m, 1, slow).ends == steady_state.flush("1f1b", p, m, 1, fast).ends
    )  # 1F1B never does


@st.composite
def long_runs(draw):
    periodic = [name for name in names() if definition(name).period is not None]
    size = draw(st.one_of([st.sampled_from(existing(name, range(2, 7), range(15, 91), 3)) for name in periodic]))
    name, p, m, v = size
    if draw(st.booleans()):  # all stages different, or the simulator's case: all but the first and the last equal
        forward, backward = (draw(st.lists(st.integers(1, 50), min_size=p * v, max_size=p * v)) for _ in "fb")
    else:
        forward, backward = [draw(st.integers(5, 50))] * (p * v), [draw(st.integers(5, 99))] * (p * v)
        forward[0] += draw(st.integers(0, 9))
        forward[-1] += draw(st.integers(0, 9))
        backward[-1] += draw(st.integers(0, 9))
    weights = [draw(st.integers(0, total)) for total in backward] if definition(name).splits else []
    alone, shared = (draw(st.lists(st.integers(0, 9), min_size=p * v, max_size=p * v)) for _ in "as")
    gather, exchange = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    hidden = {}
    if definition(name).fuses:
        saves = [draw(st.integers(0, 20)) for _ in range(p * v)]
        hidden = {
            (f, b): (min(saves[f], forward[f]), min(saves[b], backward[b])) for f in range(p * v) for b in range(p * v)
        }
    return name, p, m, v, Costs(forward, backward, (alone, shared), gather, exchange, weights, hidden)


def undominated(front):
    """The moments of which none has as much or more of everything."""
    more = lambda a, b: a != b and all(map(ge, a, b))  # noqa: E731
    return {moment for moment in front if not any(more(other, moment) for other in front)}


@given(long_runs())
@settings(deadline=None, max_examples=60)
def test_periodic_steady_state_equals_the_stepped_result(case):
    name, p, m, v, costs = case
    short = steady_state.flush(name, p, m, v, costs)
    events = steady_state.compiled_schedule(name, p, m, v).events
    arrived, _ = execute_blocking(events, costs)
    assert list(short.ends) == [arrived[steps[-1]] for steps in events.ranks]
    timeline = steady_state.pipeline_timeline(name, p, m, v, costs)
    exchanged = [sum(event.end - event.start for event in row if event.kind == "exchange") for row in timeline]
    assert list(short.communication) == exchanged
    assert steady_state.rank_fronts(name, p, m, v, short.executed) == stash_fronts(build(name, p, m, v))
    uneven = tuple(tuple((3 * rank + 2 * chunk) % 4 for chunk in range(v)) for rank in range(p))
    of_short = steady_state.rank_fronts(name, p, m, v, short.executed, uneven)
    assert list(map(undominated, of_short)) == list(map(undominated, stash_fronts(build(name, p, m, v), uneven)))
    pairs = [cell for row in build(name, p, m, v).cells for cell in row if isinstance(cell, Fused)]
    saved = [costs.hidden[pair.forward.stage, pair.backward.stage] for pair in pairs if costs.hidden]
    assert short.hidden == (sum(forward for forward, _ in saved), sum(backward for _, backward in saved))


def test_a_trillion_parameter_row_is_not_stepped_through():
    """Table 1's last row has 64 stages and 512 microbatches; its steady state shows on far fewer."""
    p = 64
    costs = Costs([40] * p, [121] * (p - 1) + [130], ([1] * p, [2] * p), 0, 0, [40] * p)
    assert steady_state.flush("1f1b", p, 512, 1, costs).executed < 150
    assert steady_state.flush("zb-h1", p, 512, 1, costs).executed < 150


def test_a_program_that_cannot_run_is_refused():
    schedule = build("1f1b", 2, 2)
    first, second = schedule.ranks
    swapped = replace(schedule, ranks=(first, second[1::-1] + second[2:]))
    with pytest.raises(ValueError, match="deadlocks on ranks"):
        compile_blocking(swapped)
