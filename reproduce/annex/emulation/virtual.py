"""Virtual accelerators: model chunks whose passes take a given time instead of computing, but pass real tensors on.

A rank with virtual chunks runs everything else for real: the executor and its messages, the collectives of
scatter/gather and of tensor parallelism across nodes, the gradients' buckets and their reduction. Times are in seconds;
the engine does not know where they come from.

Whatever a rank does inside a pass, its own overhead included, counts towards the pass's time: the pass ends when its
time is over, not later (as long as the time suffices).
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ptdp_core.engine.groups import Axis, Groups
from ptdp_core.engine.p2p import P2PCommunicator, Pair
from ptdp_core.engine.parameters import LocalParameter
from ptdp_core.engine.tensor_parallel import gather, split
from ptdp_core.layout import Boundary, Parameter
from ptdp_core.schedules import Action, Message
from ptdp_core.turns import Turns
from reproduce.annex.emulation.plan import NO_EXPERTS, AllToAll, Piece

AT_ONCE = 2e-4  # seconds that a wait may take for what is there already


def sleep_until(moment: float) -> None:
    """Sleep until the monotonic clock shows `moment`, if that is still to come. This takes no CPU time."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


@dataclass
class Pace:
    """The deadline of the running pass. It starts with the pass, and each piece of the pass moves it.

    `gathered[action]` is the time of putting the pass's input together: the modelled time inside a node, the actual
    time where the tensor group spans nodes.
    """

    deadline: float = 0.0
    action: Action | None = None
    fresh: bool = False
    gathered: dict[Action, float] = field(default_factory=dict)

    def begin(self, action: Action) -> None:
        """Note that a pass begins now."""
        self.deadline, self.action, self.fresh = time.monotonic(), action, True

    def input_ready(self, modelled: float | None) -> None:
        """Note that the input is put together. `modelled` is the time that this takes; None for the actual time."""
        if not self.fresh or self.action is None:
            return
        self.fresh = False
        taken = time.monotonic() - self.deadline if modelled is None else modelled
        self.gathered[self.action] = taken
        self.deadline += taken

    def spend(self, seconds: float) -> None:
        """Let `seconds` more of the pass go by."""
        self.deadline += seconds
        sleep_until(self.deadline)

    def wait_until(self, moment: float) -> None:
        """Let the time go by until what goes on beside the passes is done at `moment`, if that is still to come."""
        self.deadline = max(self.deadline, moment)
        sleep_until(self.deadline)

    def restart(self) -> None:
        """Move the deadline to now: what just happened takes its actual time, in addition to the modelled time."""
        self.deadline = time.monotonic()


@dataclass(frozen=True)
class ChunkTimes:
    """The seconds of compute in the passes of a virtual chunk.

    A split backward pass spends `weight_gradient` of `backward` later, in its W. `gather` is the time of putting a
    received boundary tensor together (None: the actual time). If the tensor group spans nodes, it all-reduces
    `reduced_forward` and `reduced_backward` elements in a pass, after its compute: all of the pass's all-reduces in
    one. Of its pieces those numbered in `exchanged` are followed by an all-to-all.
    """

    forward: float
    backward: float
    weight_gradient: float = 0.0
    gather: float | None = 0.0
    reduced_forward: int = 0
    reduced_backward: int = 0
    exchange: AllToAll = NO_EXPERTS
    exchanged: frozenset[int] = frozenset()


class _Pass(torch.autograd.Function):
    """A piece of a chunk, in which time goes by, forward and backward. `parameter` gets a zero gradient at the end."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, parameter: torch.Tensor, chunk: "VirtualChunk", exchanged: bool
    ) -> torch.Tensor:
        ctx.chunk, ctx.exchanged = chunk, exchanged
        ctx.shape = parameter.shape
        chunk.compute_forward(exchanged)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.chunk.compute_backward(ctx.exchanged)
        complete = ctx.chunk.last
        return grad, grad.new_zeros(1).expand(ctx.shape) if complete else None, None, None


class VirtualChunk(nn.Module):
    """A model chunk on a virtual accelerator, called as `model.Chunk` is.

    Passes come in equal pieces, one for each of `parameters`, which are in the order of the layers. `received` and
    `sent` say whether its input comes from and its output goes to another pipeline rank. It is a `SplitStage`. In a
    fused pair it hands over by `turns` at each all-to-all; both passes then have one accelerator's time, `pace`.
    """

    def __init__(
        self,
        times: ChunkTimes,
        parameters: Sequence[nn.Parameter],
        boundary: Boundary,
        tp: Axis,
        ep: Axis,
        pace: Pace,
        turns: Turns,
        *,
        received: bool,
        sent: bool,
        is_last: bool,
    ) -> None:
        super().__init__()
        self.times, self.boundary, self.tp, self.ep, self.pace, self.turns = times, boundary, tp, ep, pace, turns
        self.pieces = list(parameters)
        self.gathers_input, self.splits_output = (crosses and boundary.is_scattered for crosses in (received, sent))
        self.is_last = is_last
        self.last = False  # whether the backward pass that completes the gradients is running
        self.left = 0  # the number of pieces of the backward pass that are still to come
        self.deferred_s = 0.0  # the seconds of the running backward pass that are deferred
        self._reduced = [torch.zeros(n) for n in (times.reduced_forward, times.reduced_backward)]
        self._rows = torch.zeros(times.exchange.elements)

    def forward(self, x: torch.Tensor | None, *batch: torch.Tensor) -> torch.Tensor:
        if x is None:
            x = torch.zeros(self.boundary.shape, requires_grad=True)
        elif self.gathers_input:
            x = gather(x, self.boundary.shape, self.tp)
        self.pace.input_ready(self.times.gather if self.gathers_input else 0.0)
        for i, parameter in enumerate(self.pieces):
            x = _Pass.apply(x, parameter, self, i in self.times.exchanged)
        self._reduce(self._reduced[0])
        if self.is_last:
            return x.sum()
        return split(x, self.tp) if self.splits_output else x

    def compute_forward(self, exchanged: bool) -> None:
        """Let the time of one piece of the forward pass go by, and that of an all-to-all after it if there is one."""
        self.pace.spend(self.times.forward / len(self.pieces))
        if exchanged:
            self._exchange()

    def compute_backward(self, exchanged: bool) -> None:
        """Let the time of one piece of the backward pass go by, and that of the all-to-alls in it."""
        if self.left == 0:
            self.left = len(self.pieces)
            self.pace.input_ready(self.times.gather if self.splits_output else 0.0)
        self.left -= 1
        parts = 1 + (exchanged and self.times.exchange.repeated)
        for _ in range(parts):
            if exchanged:
                self._exchange()
            self.pace.spend((self.times.backward - self.deferred_s) / len(self.pieces) / parts)
        if self.left == 0:
            self._reduce(self._reduced[1])

    @contextmanager
    def defer_weight_gradients(self, microbatch: int) -> Iterator[None]:
        """A backward pass run inside leaves out its weight-gradient part, which is deferred (`pipeline.SplitStage`)."""
        self.deferred_s = self.times.weight_gradient
        yield
        self.deferred_s = 0.0

    def add_weight_gradients(self, microbatch: int) -> None:
        """Sleep for the deferred weight-gradient part of a backward pass (W)."""
        self.pace.spend(self.times.weight_gradient)

    def _exchange(self) -> None:
        """Exchange tokens. What the other pass of a fused pair computes meanwhile is on the accelerator's clock."""
        done, resumed = self.pace.deadline + self.times.exchange.seconds, 0.0

        def meanwhile() -> None:
            nonlocal resumed
            self.turns.hand_over()
            resumed = time.monotonic()

        if not self._rows.numel():
            self.turns.hand_over()
            self.pace.wait_until(done)
            return
        self.ep.all_to_all(self._rows, meanwhile=meanwhile)
        if time.monotonic() - resumed > AT_ONCE:
            self.pace.restart()

    def _reduce(self, buffer: torch.Tensor) -> None:
        if buffer.numel():
            self.tp.all_reduce(buffer)
            self.pace.restart()


def virtual_parameters(pieces: Sequence[Sequence[Piece]], tied: int) -> list[LocalParameter]:
    """Parameters for a `ParamAndGradBuffer`: those of `pieces[chunk]`, and `tied` of the embedding on chunk 0."""
    parameters = [
        _virtual_parameter(Parameter(f"virtual.{chunk}.{number}", (piece.elements,), stacked=piece.of_experts), chunk)
        for chunk, row in enumerate(pieces)
        for number, piece in enumerate(row)
    ]
    return [*parameters, _virtual_parameter(Parameter("virtual.tied", (tied,), tied=True), 0)] if tied else parameters


def _virtual_parameter(parameter: Parameter, chunk: int) -> LocalParameter:
    return LocalParameter(nn.Parameter(torch.zeros(parameter.shape)), parameter.shard(1, 0), chunk)


class RendezvousCommunicator(P2PCommunicator):
    """A communicator with which a message is done, for its sender, too, only when the receiver has it.

    This is so on a GPU after the device synchronisation of the paper's exchanges. With gloo the sender is done as soon
    as the kernel has taken the message.

    Receivers report their messages outside the emulated network, through Unix sockets in `folder`: on the link itself a
    report would queue behind the messages that go the same way.
    """

    def __init__(self, groups: Groups, shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> None:
        self._acknowledged: set[bytes] = set()
        self._fd = os.open(folder, os.O_RDONLY)
        self._folder = Path(f"/proc/self/fd/{self._fd}")  # a socket's path has room for 107 letters
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._folder / str(groups.rank)))
        super().__init__(groups, shape, dtype)

    def close(self) -> None:
        """Give up the socket's name, so that another communicator may use the folder."""
        self._socket.close()
        (self._folder / str(self.groups.rank)).unlink()
        os.close(self._fd)

    def _batch(self, sends: list[Pair], receives: list[Pair]) -> None:
        """Post receives first: gloo requests a message when its receive is posted, and a request must not queue."""
        group = self.groups.pp.group
        arriving = [(m, x, dist.irecv(x, group=group, group_src=m.source)) for m, x in receives]
        sent = [dist.isend(x, group=group, group_dst=m.destination) for m, x in sends]
        for message, buffer, work in arriving:
            _done(work)
            self._acknowledge(message)
            self._receiving[message] = (buffer, None)
        for work in sent:
            _done(work)
        for message, _ in sends:
            self._wait_for(str(message).encode())

    def _acknowledge(self, message: Message) -> None:
        groups = self.groups
        sender = groups.rank_at(message.source)
        self._socket.sendto(str(message).encode(), str(self._folder / str(sender)))

    def _wait_for(self, message: bytes) -> None:
        while message not in self._acknowledged:
            self._acknowledged.add(self._socket.recv(256))
        self._acknowledged.remove(message)


def _done(work: dist.Work | None) -> None:
    assert work is not None
    work.wait()
