"""Messages between neighbouring pipeline stages: checked, counted, posted in groups (Section 4.1).

NCCL creates a communicator at its first use, and blocks the host until every peer uses it, too. In the middle of a
schedule this can deadlock: the peer may be waiting for a message that this rank would have sent next. So `connect`
creates all communicators of a program before its first step. (This comes from reading NCCL's and PyTorch's sources, and
is checked against a model of their rules in tests/ptdp_core/engine/nccl.py; it has not run on GPUs.)

gloo aborts the process if a message has a wrong length, and silently reinterprets a wrong data type. So all ranks
compare shape and type once, when the `P2PCommunicator` is made, and every tensor is checked before it is sent.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from ptdp_core.engine.groups import Groups
from ptdp_core.schedules import Exchange, Message, Program, channels

Pair = tuple[Message, torch.Tensor]


@dataclass
class P2PStatistics:
    """What this rank has sent so far.

    A receive buffer counts from the moment it is posted until the tensor in it is used.
    """

    messages: int = 0
    bytes: int = 0
    exchanges: int = 0
    peak_receive_buffers: int = 0


class P2PCommunicator:
    """Sends and receives the boundary tensors of this pipeline rank; all of them have the same shape and type.

    Raises `ValueError` if the ranks of the pipeline do not agree on them.
    """

    def __init__(self, groups: Groups, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.groups, self.shape, self.dtype = groups, torch.Size(shape), dtype
        self.statistics = P2PStatistics()
        self._receiving: dict[Message, tuple[torch.Tensor, dist.Work | None]] = {}
        self._sending: list[tuple[torch.Tensor, dist.Work]] = []
        if groups.pp.size > 1:
            self._agree()

    def _agree(self) -> None:
        """Compare this rank's shape and type with those of all pipeline ranks; raises `ValueError` if they differ."""
        boundary = (tuple(self.shape), str(self.dtype))
        boundaries: list[tuple[tuple[int, ...], str]] = [boundary] * self.groups.pp.size
        dist.all_gather_object(boundaries, boundary, group=self.groups.pp.group)
        for rank, other in enumerate(boundaries):
            if other != boundary:
                raise ValueError(
                    f"boundary={boundary} on pipeline rank {self.groups.pp.rank} but {other} on rank {rank}; needs one "
                    "shape and type on all ranks; try the same configuration on every rank"
                )

    def connect(self, program: Program) -> None:
        """Create the communicators that a training step uses, by sending one element over each; all ranks call this.

        First the groups of the axes all-reduce an element. The pipeline's group carries blocking exchanges and
        the gradient of the tied embedding; the data-parallel group may be used in the middle of a backward pass. Then,
        for an overlapped program, each pair of pipeline ranks sends an element on each lane that it uses. All ranks
        follow the order of `channels`, in which no two ranks wait for each other and half of the pairs go at once.
        """
        pp, element = self.groups.pp, torch.zeros(1, device=self.groups.device)
        for axis in self.groups.axes:
            if axis.size > 1:
                dist.all_reduce(element, group=axis.group)
        for source, destination in channels(program) if program.mode == "overlapped" else ():
            lane = self._lane(source, destination)
            if pp.rank == source:
                dist.send(element, group=lane, group_dst=destination)
            elif pp.rank == destination:
                dist.recv(element, group=lane, group_src=source)

    def _checked(self, tensor: torch.Tensor, message: Message) -> torch.Tensor:
        """The tensor, contiguous. Raises `ValueError` if its shape or type is not that of the boundary."""
        if tensor.shape != self.shape or tensor.dtype != self.dtype:
            raise ValueError(
                f"message={message} is {tuple(tensor.shape)} {tensor.dtype}; needs {tuple(self.shape)} {self.dtype}, "
                "which the other end expects; try the boundary shape and type the communicator was made with"
            )
        return tensor.contiguous()

    def post(self, exchange: Exchange, outgoing: dict[Message, torch.Tensor], blocking: bool) -> None:
        """Start a group of messages; the tensors to send are taken out of `outgoing`.

        With `blocking`, also wait until all messages are done and the device is idle.
        """
        sends = [(message, self._checked(outgoing.pop(message), message)) for message in exchange.sends]
        receives = [
            (message, torch.empty(self.shape, dtype=self.dtype, device=self.groups.device))
            for message in exchange.receives
        ]
        (self._batch if blocking else self._post_each)(sends, receives)
        statistics = self.statistics
        statistics.exchanges += 1
        statistics.messages += len(sends)
        statistics.bytes += sum(tensor.numel() * tensor.element_size() for _, tensor in sends)
        statistics.peak_receive_buffers = max(statistics.peak_receive_buffers, len(self._receiving))

    def _batch(self, sends: list[Pair], receives: list[Pair]) -> None:
        """As in the paper's code: one batch on one communicator, a wait for it, and a synchronisation of the device."""
        group = self.groups.pp.group
        batch = [dist.P2POp(dist.isend, x, group=group, group_peer=m.destination) for m, x in sends]
        batch += [dist.P2POp(dist.irecv, x, group=group, group_peer=m.source) for m, x in receives]
        for work in reversed(dist.batch_isend_irecv(batch)):  # receives end last: the host is then woken once
            work.wait()
        if self.groups.device.type == "cuda":
            torch.cuda.synchronize(self.groups.device)
        self._receiving.update({message: (buffer, None) for message, buffer in receives})

    def _post_each(self, sends: list[Pair], receives: list[Pair]) -> None:
        """Post each message on the lane of its direction; `take` and `flush` wait for it."""
        self._free_sent()  # here, too, as the first stage of an evaluation takes no message
        for message, tensor in sends:
            lane = self._lane(message.source, message.destination)
            sending = dist.isend(tensor, group=lane, group_dst=message.destination)
            assert sending is not None
            # `isend` only borrows the tensor, which has to stay alive until it is sent.
            self._sending.append((tensor, sending))
        for message, buffer in receives:
            lane = self._lane(message.source, message.destination)
            self._receiving[message] = (buffer, dist.irecv(buffer, group=lane, group_src=message.source))

    def _lane(self, source: int, destination: int) -> dist.ProcessGroup | None:
        """The process group for messages in this direction of the pipeline (see `Groups`)."""
        return self.groups.up if destination > source else self.groups.down

    def take(self, message: Message) -> torch.Tensor:
        """Wait for a message whose receive was posted, and return the tensor received."""
        buffer, work = self._receiving.pop(message)
        if work is not None:
            work.wait()
        self._free_sent()
        return buffer

    def _free_sent(self) -> None:
        """Keep the tensors only of messages that are still being sent."""
        self._sending = [(tensor, work) for tensor, work in self._sending if not work.is_completed()]

    def flush(self) -> None:
        """Wait for all sends that are not complete; called at the pipeline flush."""
        for _, work in self._sending:
            work.wait()
        self._sending.clear()
