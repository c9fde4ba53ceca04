"""Lowered programs under a model of NCCL's rules (`nccl.py`), and the calls that it models as the engine makes them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ptdp_core.engine.groups import Axis, Groups
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.engine.pipeline import Executor, forward_schedule
from ptdp_core.schedules import MODES, Exchange, Message, Program, build, channels, lower, names
from tests.ptdp_core.engine.nccl import Machine, host_calls
from tests.ptdp_core.schedules.cases import existing


def sizes(ps, most_v, multiple):
    """Every registered schedule with m up to `multiple` times p."""
    return [size for p in ps for name in names() for size in existing(name, [p], range(1, multiple * p + 1), most_v)]


def problems(sizes, **options):
    """The programs of these schedules, in both modes, that do not end or mix up messages."""
    problems_by_size = {}
    for size in sizes:
        for mode in MODES:
            machine = Machine(lower(build(*size), mode), **options)
            stuck = machine.stuck()
            if stuck or machine.mismatches:
                problems_by_size[mode, size] = stuck, machine.mismatches
    return problems_by_size


def test_programs_end_and_mix_up_nothing():
    assert problems(sizes((2, 3, 4), most_v=3, multiple=2)) == {}


def test_the_forward_passes_of_an_evaluation_end_and_mix_up_nothing():
    for size in sizes((2, 3, 4), most_v=3, multiple=2):
        for mode in MODES:
            machine = Machine(lower(forward_schedule(build(*size)), mode))
            assert machine.stuck() == []
            assert machine.mismatches == []


@pytest.mark.slow
def test_all_programs_end_and_mix_up_nothing():
    assert problems(sizes(range(2, 9), most_v=4, multiple=4)) == {}


def test_without_connecting_first_overlapped_exchanges_hang():
    """What `P2PCommunicator.connect` and pinned copies are for. Blocking exchanges never needed them.

    Of the paper's schedules and ZB-H1, with each number of microbatches, exactly these hang.
    """
    four = ("gpipe", "1f1b", "interleaved", "zb-h1")
    tried = [size for size in sizes((2, 3, 4, 5), most_v=3, multiple=2) if size[0] in four]
    hangs = problems(tried, connected=False, pinned=False)
    assert {mode for mode, _ in hangs} == {"overlapped"}
    interleaved = {("interleaved", p, p, v) for p in (3, 4, 5) for v in (2, 3)}
    expected = interleaved | {size for size in tried if size[0] == "gpipe" or size[2] == 1}
    assert {size for _, size in hangs} == expected
    assert not any(mismatches for _, mismatches in hangs.values())


def test_the_two_directions_of_a_pair_need_a_communicator_each():
    hangs = problems(sizes((2, 4), most_v=1, multiple=2), lanes=1)
    assert ("overlapped", ("1f1b", 4, 8, 1)) in hangs


def test_a_program_whose_ends_disagree_is_found():
    program = lower(build("gpipe", 2, 3), "overlapped")
    swapped = list(program.ranks[1])
    exchanges = [i for i, instruction in enumerate(swapped) if getattr(instruction, "receives", ())]
    first = swapped[exchanges[0]]
    swapped[exchanges[0]] = first._replace(receives=tuple(reversed(first.receives)))
    machine = Machine(Program(program.mode, program.schedule, (program.ranks[0], tuple(swapped))))
    machine.stuck()
    assert machine.mismatches


class Recorder:
    """In place of torch.distributed: every call, and nothing sent."""

    def __init__(self, rank):
        self.rank, self.calls = rank, list[tuple[str, Any, int]]()

    def call(self, kind):
        def record(tensor, *, group=None, group_dst=-1, group_src=-1):
            self.calls.append((kind, group, max(group_dst, group_src)))
            return SimpleNamespace(wait=lambda: None, is_completed=lambda: True)

        return record


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "p", "m", "v"), [("1f1b", 3, 4, 1), ("gpipe", 3, 2, 1), ("interleaved", 4, 8, 2)])
def test_the_engine_makes_the_calls_that_are_modelled(name, p, m, v, mode, monkeypatch):
    program = lower(build(name, p, m, v), mode)
    for rank in range(p):
        recorder = Recorder(rank)
        for call in ("send", "recv", "isend", "irecv", "all_reduce"):
            monkeypatch.setattr(dist, call, recorder.call(call))
        batches = []
        monkeypatch.setattr(dist, "P2POp", lambda op, x, group, group_peer: (op, group_peer))
        monkeypatch.setattr(dist, "batch_isend_irecv", lambda batch: batches.append(batch) or [])  # noqa: B023
        monkeypatch.setattr(P2PCommunicator, "_agree", lambda self: None)
        pp = Axis("pp", rank, p, "pp")
        groups = Groups(pp, Axis("dp"), Axis("tp"), torch.device("cpu"), "up", "down")
        weight = torch.nn.Parameter(torch.ones(()))

        def run(x, *batch, weight=weight):
            return weight * (1.0 if x is None else x)

        executor = Executor(program, [run] * v, P2PCommunicator(groups, (), torch.float32), groups)
        lanes = {pair: "up" if pair[1] > pair[0] else "down" for pair in channels(program)}
        mine = [pair for pair in channels(program) if rank in pair] if mode == "overlapped" else []
        connecting = [("send" if rank == a else "recv", lanes[a, b], b if rank == a else a) for a, b in mine]
        assert recorder.calls == [("all_reduce", "pp", -1), *connecting]
        recorder.calls.clear()
        executor.run(lambda j: (torch.zeros(1), torch.zeros(1)))
        posted = [call for call in host_calls(program, rank, pinned=True, lanes=2) if call.kind == "post"]
        if mode == "overlapped":
            for recorded, call in zip(recorder.calls, posted, strict=True):
                kind, peer = ("isend", call.channel[1]) if call.sends else ("irecv", call.channel[0])
                assert recorded == (kind, lanes[call.channel], peer)
        else:
            assert [[peer for _, peer in batch] for batch in batches] == [
                [*(x.destination for x in call.sends), *(x.source for x in call.receives)] for call in posted
            ]


def test_a_blocking_exchange_waits_for_receives_before_sends(monkeypatch):
    """A send ends when the peer has asked for it, a receive when the peer has computed: after it no wait sleeps."""
    waited = []
    works = [SimpleNamespace(wait=lambda name=name: waited.append(name)) for name in ("send", "receive")]
    monkeypatch.setattr(dist, "P2POp", lambda op, x, group, group_peer: None)
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda batch: works)
    monkeypatch.setattr(P2PCommunicator, "_agree", lambda self: None)
    p2p = P2PCommunicator(
        Groups(Axis("pp", 0, 2, "pp"), Axis("dp"), Axis("tp"), torch.device("cpu")), (), torch.float32
    )
    sent, received = Message("F", 0, 1, 0, 1), Message("B", 1, 0, 1, 0)
    p2p.post(Exchange((sent,), (received,)), {sent: torch.zeros(())}, blocking=True)
    assert waited == ["receive", "send"]
    assert p2p.take(received).shape == ()
