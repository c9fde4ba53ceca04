"""Process groups of the p*t*c*d ranks of `layout.RankGrid`, along its axes pp, dp, cp and tp (Section 3.1).

There is no global state: a rank makes one `Groups` object and passes it to everything that communicates.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from ptdp_core.config import ParallelConfig
from ptdp_core.engine.settings import check_world_size
from ptdp_core.layout import RankGrid

# With at most so many ranks, gloo connects each to each when a group is made, so that no step waits for a connection.
# More ranks connect when they first need it: each of 3,072 would need 9,213 sockets for three groups of all ranks (the
# default one, that of checkpoints, that of SIGTERM), where a process may usually open 1,024 files.
FULL_MESH = 128
# torch 2.13 renamed these two, and warns about the old names on every rank.
gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_flat = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Rows = Sequence[int] | None  # to or from each rank


@dataclass(frozen=True)
class PassedOn:
    """A tensor on its way to the next rank of an axis, and the one that comes from the rank before."""

    sent: torch.Tensor  # alive until it has been sent
    received: torch.Tensor
    works: Sequence[dist.Work]

    def wait(self) -> torch.Tensor:
        """Wait for both, and return the tensor received."""
        for work in self.works:
            work.wait()
        return self.received


@dataclass(frozen=True)
class Axis:
    """One axis of the grid, as this rank sees it: its process group, and its rank in it.

    On an axis with one rank the collectives do nothing. `calls` counts the collectives that communicated, by name.
    """

    name: str
    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    calls: Counter[str] = field(default_factory=Counter)

    def all_reduce(self, x: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> torch.Tensor:
        """Reduce `x` in place over the axis, and return it."""
        if self.size > 1:
            self.calls["all_reduce"] += 1
            dist.all_reduce(x, op=op, group=self.group)
        return x

    def start_all_reduce(self, x: torch.Tensor) -> dist.Work | None:
        """Start to sum `x` in place, and return what to wait for before `x` is used; None on an axis of one rank."""
        if self.size == 1:
            return None
        self.calls["all_reduce"] += 1
        return dist.all_reduce(x, group=self.group, async_op=True)

    def start_all_gather(self, x: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
        """Start to `all_gather` on an axis of several ranks; return the result, and what to wait for before its use."""
        self.calls["all_gather"] += 1
        out = x.new_empty(self.size * x.numel())
        return out, gather_flat(out, x.reshape(-1), group=self.group, async_op=True)

    def start_reduce_scatter(self, x: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
        """Start to `reduce_scatter` on an axis of several ranks; return the result, and what to wait for before use."""
        self.calls["reduce_scatter"] += 1
        out = x.new_empty(x.numel() // self.size)
        return out, reduce_scatter_flat(out, x.reshape(-1), group=self.group, async_op=True)

    def all_gather(self, flat: torch.Tensor) -> torch.Tensor:
        """Concatenate the flat tensors [n] of all ranks of the axis, in the order of ranks: [size*n]."""
        if self.size == 1:
            return flat
        self.calls["all_gather"] += 1
        out = flat.new_empty(self.size * flat.numel())
        gather_flat(out, flat.contiguous(), group=self.group)
        return out

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        """Sum `x` over the axis, and return this rank's `part` of the sum, [numel/size]."""
        if self.size == 1:
            return x.reshape(-1)
        out, work = self.start_reduce_scatter(x)
        work.wait()
        return out

    def all_to_all(
        self, x: torch.Tensor, sent: Rows = None, received: Rows = None, meanwhile: Callable[[], object] = lambda: None
    ) -> torch.Tensor:
        """Send `sent[i]` rows of x to rank i of the axis, one block after the other, and return those received.

        Without the counts every rank sends and receives equally many. `meanwhile` is called while they are on the way.
        """
        if self.size == 1:
            return x
        self.calls["all_to_all"] += 1
        out = x.new_empty(x.size(0) if received is None else sum(received), *x.shape[1:])
        work = dist.all_to_all_single(out, x.contiguous(), received, sent, group=self.group, async_op=True)
        meanwhile()
        work.wait()
        return out

    def start_to_pass_on(self, x: torch.Tensor) -> "PassedOn":
        """Start to send `x` to the next rank of an axis of several, and to receive that of the rank before."""
        self.calls["pass_on"] += 1
        received, following, before = torch.empty_like(x), (self.rank + 1) % self.size, (self.rank - 1) % self.size
        pair = [  # receive first: gloo asks the peer for its message, and should not ask behind ours
            dist.P2POp(dist.irecv, received, group=self.group, group_peer=before),
            dist.P2POp(dist.isend, x, group=self.group, group_peer=following),
        ]
        return PassedOn(x, received, dist.batch_isend_irecv(pair))

    def part(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's 1/size of the flattened `x`, which is a view if `x` is contiguous."""
        return x.reshape(-1).chunk(self.size)[self.rank]


@dataclass(frozen=True)
class Groups:
    """Everything a rank needs to communicate: its axes, its device, and two more groups along the pipeline.

    `dp` are the d*c ranks that hold the same parameters, over which gradients are reduced: those along the grid's dp
    and cp. Of them the c of `cp` share the sequences of a replica.

    `up` carries messages to higher pipeline ranks, `down` those to lower ranks. With one group for both, NCCL would let
    a pending receive hold up a later send to the same peer, and overlapped exchanges would deadlock.

    The ranks of `ep` hold different experts and exchange tokens, those of `edp` hold the same experts: without expert
    parallelism they are the data-parallel replicas.
    """

    pp: Axis
    dp: Axis
    tp: Axis
    device: torch.device
    up: dist.ProcessGroup | None = None
    down: dist.ProcessGroup | None = None
    cp: Axis = field(default_factory=lambda: Axis("cp"))
    ep: Axis = field(default_factory=lambda: Axis("ep"))
    edp: Axis = field(default_factory=lambda: Axis("edp"))

    @classmethod
    def alone(cls, device: torch.device | str = "cpu") -> "Groups":
        """One rank and no process group: p = t = c = d = 1."""
        return cls(Axis("pp"), Axis("dp"), Axis("tp"), torch.device(device))

    @classmethod
    def create(cls, parallel: ParallelConfig, device: torch.device | str = "cpu") -> "Groups":
        """Make the groups of this rank. Every rank of the default process group, which is initialised, calls this.

        Raises `ValueError` if the default group does not have p*t*c*d ranks.
        """
        check_world_size(dist.get_world_size(), parallel)
        grid, rank = RankGrid.of(parallel), dist.get_rank()
        here = grid.coordinates(rank)

        def axis(name: str, *along: str) -> Axis:
            return _axis(name, rank, grid.group(*along, **here))

        pipeline, dp = grid.group("pp", **here), axis("dp", "dp", "cp")
        ep, edp = _expert_axes(parallel, grid, dp)
        return cls(
            pp=axis("pp", "pp"),
            dp=dp,
            tp=axis("tp", "tp"),
            device=torch.device(device),
            up=_group(pipeline, "pp"),
            down=_group(pipeline, "pp"),
            cp=axis("cp", "cp"),
            ep=ep,
            edp=edp,
        )

    @property
    def grid(self) -> RankGrid:
        """The grid of all ranks."""
        return RankGrid.sized(self.pp.size, self.tp.size, self.dp.size // self.cp.size, self.cp.size)

    @property
    def replica(self) -> int:
        """The data-parallel rank, from 0 to d - 1: on which sequences of a batch this process trains."""
        return self.dp.rank // self.cp.size

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, in the order in which their communicators are made."""
        own = () if self.edp is self.dp else (self.ep, self.edp)
        return self.pp, self.dp, self.tp, self.cp, *own

    def rank_at(self, pp: int) -> int:
        """The global rank on pipeline rank pp at this process's place of the other axes."""
        return self.grid.rank(pp=pp, dp=self.replica, cp=self.cp.rank, tp=self.tp.rank)

    @property
    def rank(self) -> int:
        """This process's global rank."""
        return self.rank_at(self.pp.rank)


def _expert_axes(parallel: ParallelConfig, grid: RankGrid, dp: Axis) -> tuple[Axis, Axis]:
    """The axes `ep` and `edp` of this rank; if experts are as all else, so are their replicas."""
    if parallel.e == 1 and not parallel.whole_experts:
        return Axis("ep"), dp
    rank, sizes = dist.get_rank(), (parallel.e, parallel.expert_tensor_ranks)
    return (
        _axis("ep", rank, grid.expert_group(rank, *sizes)),
        _axis("edp", rank, grid.expert_data_group(rank, *sizes)),
    )


def _axis(name: str, rank: int, ranks: Sequence[int]) -> Axis:
    """The axis along these ranks, as this one of them sees it."""
    return Axis(name, ranks.index(rank), len(ranks), _group(ranks, name))


def _group(ranks: Sequence[int], name: str) -> dist.ProcessGroup | None:
    """A process group of these ranks, or None if there is only one. Only the ranks of the group call this.

    A profile calls the group by its `name`.

    So each rank makes its own 5 groups (6 with c > 1, with experts 2 more), and not all groups of the grid, which are
    1,040 for the paper's 3,072 ranks.
    """
    if len(ranks) == 1:
        return None
    group: dist.ProcessGroup = dist.new_group(list(ranks), use_local_synchronization=True, group_desc=name)
    return group


def pipeline_group(groups: Groups, name: str) -> dist.ProcessGroup | None:
    """A further process group of a pipeline's ranks, which all of them make together."""
    return _group([groups.rank_at(pp) for pp in range(groups.pp.size)], name)


def initialise(device: torch.device, timeout: float = 600.0, store: str | None = None) -> None:
    """Join the default process group, described by torchrun's environment variables, or by the file `store` if given.

    The backend is gloo on CPUs. On GPUs it is NCCL, with gloo for tensors on the host (planning of checkpoints).
    `timeout` is in seconds.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > FULL_MESH:
        os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    else:
        # torch notes the last 2,000 collectives, to show them where NCCL hangs. The notes lie between the tensors that
        # a step makes and frees, so that these fit into ever fewer gaps: a rank grew by up to 100 KB every step.
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")
        backend = "gloo"
    limit = timedelta(seconds=timeout)
    if store is not None:
        dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=limit)
    else:
        dist.init_process_group(backend, timeout=limit)


def local_device(name: str) -> torch.device:
    """The device of this rank. `name` is 'cpu', 'cuda', or 'auto', which means a GPU if there is one.

    With several GPUs the environment variable LOCAL_RANK says which is this rank's. A rank that sees a single GPU, as
    Slurm may arrange, uses that one. Raises `ValueError` for an unknown name or a missing GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("device='cuda' without a GPU; needs a CUDA device; try device='cpu'")
        rank, visible = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if 1 < visible <= rank:
            raise ValueError(
                f"device='cuda' with LOCAL_RANK={rank}, and {visible} GPUs here; needs a GPU for each rank; "
                f"try {visible} ranks a node"
            )
        return torch.device("cuda", rank if visible > 1 else 0)
    if name != "cpu":
        raise ValueError(f"device={name!r} is unknown; needs one of auto, cpu, cuda; try device='auto'")
    return torch.device("cpu")
