"""A model of what NCCL and CUDA streams let a lowered program do: whether it ends, and whether messages get mixed up.

The rules, as NCCL and PyTorch's use of it have them:

- The host runs ahead: a pass and a message are queued, not waited for. Passes run in order on the compute stream, and
  one with an input waits there for its receive.
- Operations of a communicator run in the order in which they were issued, each after what the compute stream was given
  before it. A send completes only together with the receive that it meets.
- A communicator is made at its first use, and making it holds up the host until all its ranks have come to use it.
- A message that is not part of a batch goes over a communicator of its pair of ranks and its process group. A batch
  goes over one of the whole group; its messages go all at once, and the host waits for them.
- A copy from pageable memory holds up the host until the compute stream is empty.

What happens only ever makes more possible, so the order in which ranks are looked at does not matter.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ptdp_core.schedules import Compute, Message, Program, channels, message_into

Channel = tuple[int, ...]  # a communicator by name: (source, destination) of a lane, or () for the whole group


class Call(NamedTuple):
    """What the host does next: 'reach' a communicator, 'post' messages on it, queue a 'wait' for a receive or a 'pass'
    on the compute stream, or wait itself until that is empty ('drain') or until all messages are through ('finish')."""

    kind: str
    channel: Channel = ()
    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()


@dataclass
class Operation:
    """Messages posted on a communicator and not yet through; they go after `after` entries of the compute stream."""

    sends: list[Message]
    receives: list[Message]
    after: int


@dataclass
class Rank:
    """Where a rank stands."""

    calls: list[Call]
    done: int = 0  # calls the host has made
    stream: list[Message | None] = field(default_factory=list)  # the compute stream: passes, and what they wait for
    run: int = 0  # entries of the stream that have run
    queues: dict[Channel, deque[Operation]] = field(default_factory=dict)
    received: set[Message] = field(default_factory=set)

    def head(self, channel: Channel) -> Operation | None:
        """The operation of a communicator that is under way."""
        queue = self.queues.get(channel)
        return queue[0] if queue and queue[0].after <= self.run else None

    @property
    def ended(self) -> bool:
        return self.done == len(self.calls) and self.run == len(self.stream) and not any(self.queues.values())


def host_calls(program: Program, rank: int, pinned: bool, lanes: int) -> Iterator[Call]:
    """What `engine.pipeline.Executor` and `engine.p2p.P2PCommunicator` make of a rank's instructions."""
    schedule = program.schedule
    for instruction in program.ranks[rank]:
        if isinstance(instruction, Compute):
            for action in instruction.actions:
                message = message_into(action, schedule.placement)
                if message is not None:
                    yield Call("wait", receives=(message,))
            for action in instruction.actions:
                if not pinned and action.kind == "F" and action.stage in (0, schedule.stages - 1):
                    yield Call("drain")
                yield Call("pass")
        elif program.mode == "blocking":
            yield Call("reach")
            yield Call("post", (), instruction.sends, instruction.receives)
            yield Call("finish")
        else:
            for message in (*instruction.sends, *instruction.receives):
                channel = channel_of(message.source, message.destination, lanes)
                yield Call("reach", channel)
                is_send = message.source == rank
                yield Call("post", channel, (message,) * is_send, (message,) * (not is_send))


def channel_of(source: int, destination: int, lanes: int) -> Channel:
    """The communicator of a message: with one lane, the same in both directions."""
    return (source, destination) if lanes == 2 else (min(source, destination), max(source, destination))


class Machine:
    """Runs a program by the rules, as far as it gets.

    `connected`: the communicators exist before the program starts, as `P2PCommunicator.connect` makes them. `pinned`:
    tokens are copied without waiting. `lanes` = 1: both directions between two ranks share a communicator.
    """

    def __init__(self, program: Program, *, connected: bool = True, pinned: bool = True, lanes: int = 2) -> None:
        p = len(program.ranks)
        self.ranks = [Rank(list(host_calls(program, r, pinned, lanes))) for r in range(p)]
        self.members: dict[Channel, set[int]] = {(): set(range(p))}
        for source, destination in channels(program):
            self.members[channel_of(source, destination, lanes)] = {source, destination}
        self.arrived = {channel: set(members) if connected else set() for channel, members in self.members.items()}
        self.mismatches: list[tuple[Message, Message]] = []  # what was sent, and what it was taken for

    def stuck(self) -> list[int]:
        """Let all ranks go on until none can; those that have not come to their end."""
        awake = set(range(len(self.ranks)))
        while awake:
            r = awake.pop()
            while self.host(r, awake) | self.stream(r) | self.messages(r, awake):
                pass
        return [r for r, rank in enumerate(self.ranks) if not rank.ended]

    def host(self, r: int, awake: set[int]) -> bool:
        """Make the next call, unless the host is held up."""
        rank = self.ranks[r]
        if rank.done == len(rank.calls):
            return False
        kind, channel, sends, receives = rank.calls[rank.done]
        if kind == "reach":
            if r not in self.arrived[channel]:
                self.arrived[channel].add(r)
                awake |= self.members[channel] - {r}
            if self.arrived[channel] != self.members[channel]:
                return False
        elif kind == "post":
            operation = Operation(list(sends), list(receives), len(rank.stream))
            rank.queues.setdefault(channel, deque()).append(operation)
        elif kind == "drain":
            if rank.run < len(rank.stream):
                return False
        elif kind == "finish":
            if any(rank.queues.values()):
                return False
        else:
            rank.stream.append(receives[0] if receives else None)
        rank.done += 1
        return True

    def stream(self, r: int) -> bool:
        """Run what the compute stream can."""
        rank, before = self.ranks[r], self.ranks[r].run
        while rank.run < len(rank.stream):
            message = rank.stream[rank.run]
            if message is not None and message not in rank.received:
                break
            rank.run += 1
        return rank.run > before

    def messages(self, r: int, awake: set[int]) -> bool:
        """Let messages through that are under way at both ends."""
        progress = False
        for channel, queue in self.ranks[r].queues.items():
            while operation := self.ranks[r].head(channel):
                for peer in self.members[channel] - {r}:
                    other = self.ranks[peer].head(channel)
                    if other:
                        moved = self.meet(operation, other, r, peer) | self.meet(other, operation, peer, r)
                        if moved:
                            awake.add(peer)
                            progress = True
                        if not other.sends and not other.receives:
                            self.ranks[peer].queues[channel].popleft()
                if operation.sends or operation.receives:
                    break
                queue.popleft()
        return progress

    def meet(self, sending: Operation, receiving: Operation, source: int, destination: int) -> bool:
        """The sends of one operation meet the receives of another, in their order."""
        moved = False
        for sent in [m for m in sending.sends if m.destination == destination]:
            taken = next((m for m in receiving.receives if m.source == source), None)
            if taken is None:
                break
            sending.sends.remove(sent)
            receiving.receives.remove(taken)
            self.ranks[destination].received.add(taken)
            if sent != taken:
                self.mismatches.append((sent, taken))
            moved = True
        return moved
