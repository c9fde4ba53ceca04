"""How long sent tensors live, on a rank whose messages go nowhere."""

from types import SimpleNamespace

import pytest
import torch

from ptdp_core.engine.groups import Groups
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.schedules import Exchange, Message
from reproduce.annex.exact import sends
from reproduce.annex.exact.sends import Sends

MESSAGES = 4


@pytest.fixture
def p2p(monkeypatch):
    work = SimpleNamespace(wait=lambda: None, is_completed=lambda: False)
    monkeypatch.setattr(sends.dist, "isend", lambda tensor, **options: work)
    monkeypatch.setattr(sends.dist, "irecv", lambda tensor, **options: work)
    return P2PCommunicator(Groups.alone(), (2,), torch.float32)


def exchange(p2p):
    """Send and receive in turn, as a stage in the middle of a pipeline does, and flush."""
    counted = Sends()
    with counted.active():
        for microbatch in range(MESSAGES):
            sent, received = Message("F", 1, microbatch, 0, 1), Message("F", 0, microbatch, 1, 0)
            p2p.post(Exchange((sent,), (received,)), {sent: torch.zeros(2)}, blocking=False)
            p2p.take(received)
        p2p.flush()
    return counted


def test_a_tensor_is_released_as_soon_as_the_engine_next_looks(p2p):
    counted = exchange(p2p)
    assert counted.released == {"p2p.P2PCommunicator._free_sent": {"sent tensors released": MESSAGES}}
    assert counted.most == 1


def test_tensors_kept_until_the_flush_are_all_alive_at_once(p2p, monkeypatch):
    monkeypatch.setattr(P2PCommunicator, "_free_sent", lambda self: None)
    counted = exchange(p2p)
    assert "p2p.P2PCommunicator._free_sent" not in counted.released
    assert counted.most == MESSAGES
