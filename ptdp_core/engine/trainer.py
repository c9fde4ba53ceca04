"""One training step of PTD-P on this rank, put together from the engine's other modules.

trainer = Trainer(settings, groups, operators)
result = trainer.step(batch)          # batch(j): tokens and labels [b, s] of microbatch j of this replica
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels import Kernels
from ptdp_core.engine.cuda_graph import GraphedExecutor
from ptdp_core.engine.experts import Routing
from ptdp_core.engine.fp8 import Fp8, is_native
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.model import Build, build_chunks
from ptdp_core.engine.optimizer import Optimizer, learning_rate
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.engine.param_and_grad_buffer import MIB, ParamAndGradBuffer
from ptdp_core.engine.parameters import TORCH_DTYPES, ParameterStore
from ptdp_core.engine.pipeline import Batch, BatchResult, Executor, last_backward
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.vocabulary import SharedVocabulary
from ptdp_core.engine.weight_gradients import WeightGradients
from ptdp_core.errors import ConfigurationError
from ptdp_core.layout import Boundary
from ptdp_core.schedules import Action, build, check_order, lower
from ptdp_core.turns import Turns

LEAST = 1 << 15  # elements of a weight whose gradient a kernel of its own adds in less time than a function in Python


@dataclass(frozen=True)
class TrainStep:
    """The results of a step.

    `loss` is the mean over the whole batch, and `norm` the gradient's before clipping; both are equal on all ranks.
    `step` counts from 1. `lr` and `scale` are the learning rate and loss scale that the step used. `dropped` counts the
    pairs of a token and an expert that were beyond a capacity, in all layers of all replicas.
    """

    step: int
    loss: float
    norm: float
    lr: float
    skipped: bool
    scale: float
    run: BatchResult
    dropped: int = 0


class Trainer:
    """The engine on one rank: chunks, executor, gradients, optimizer, and `done`, the number of steps done.

    All ranks of the run construct it and call its methods together. `record` keeps a timeline of every step.
    """

    def __init__(self, settings: Settings, groups: Groups, ops: Kernels, *, record: bool = False) -> None:
        self.settings, self.groups = settings, groups
        parallel, engine = settings.parallel, settings.engine
        dtype = TORCH_DTYPES[engine.dtype]
        if engine.cuda_graph and groups.device.type != "cuda":
            raise ConfigurationError(
                f"cuda_graph=True with device={groups.device.type!r}; needs a GPU; try cuda_graph=false"
            )
        self.done = 0
        self.rng = RNGTracker(engine.seed, groups.device, groups.tp.rank, groups.cp.rank)
        overlap = parallel.data_parallel == "torch"
        program = lower(build(parallel.schedule, parallel.p, parallel.m, parallel.v), engine.exchange)
        check_order(program)
        self.schedule = program.schedule
        weight_gradients = WeightGradients(self.schedule.is_split, engine.overlapped_all_reduce)
        recipe, fp8 = parallel.fp8_recipe, None
        if recipe != "none":
            fp8 = Fp8(recipe, is_native(recipe, groups.device), ops.name)
        self.store = ParameterStore(
            engine.seed,
            groups.tp,
            groups.device,
            dtype,
            weight_gradients,
            groups.ep,
            parallel.whole_experts,
            fp8,
            groups.pp if parallel.vocabulary else None,
        )
        sharing = (groups.cp, groups.tp) if parallel.whole_experts else (groups.cp,)
        self.routing = Routing(groups.ep, sharing, parallel.capacity_factor, 1.0 / parallel.m, Turns(self.rng))
        parts = Build(settings, self.store, ops, self.rng, self.routing, groups.cp)
        self.chunks = build_chunks(parts, self.schedule.placement, groups.pp.rank)
        self.vocabulary = SharedVocabulary(parts, groups, self.schedule, parallel.v) if parallel.vocabulary else None
        self.buffer = ParamAndGradBuffer(
            self.store.parameters,
            groups,
            overlap=overlap,
            sharded=parallel.sharded_optimizer,
            bucket_bytes=int(engine.bucket_mib * MIB),
            sequence_parallel=parallel.sequence_parallel,
            tied_ranks=settings.training.tied_ranks,
        )
        if engine.fused_accumulation or self.buffer.dtype == dtype:
            # In a pipeline all schedules add alike, to the bit; tensor ranks have functions in any case.
            alone = groups.pp.size == groups.tp.size == 1 and not engine.fused_accumulation
            self.buffer.accumulate_in_gemms(weight_gradients, LEAST if alone else 0)
        if engine.overlapped_gather:
            self.buffer.gather_behind(module for chunk in self.chunks for module in chunk.modules())
        self.optimizer = Optimizer(self.buffer, groups, settings.optimizer)
        self.p2p = P2PCommunicator(groups, Boundary.of(settings.training).message_shape, dtype)
        self._replica, self._replicas = groups.replica, parallel.d
        self._last = last_backward(program, groups.pp.rank)
        turns = self.routing.turns
        self.executor = Executor(program, self.chunks, self.p2p, groups, self._before, record, turns, self.vocabulary)
        self._run = (GraphedExecutor(self.executor, groups) if engine.cuda_graph and not record else self.executor).run

    def _before(self, action: Action) -> None:
        """Prepare a pass: set the random streams' microbatch, and announce a chunk's last backward pass."""
        self.rng.begin(self.done, action.microbatch * self._replicas + self._replica)
        if action in self._last:
            self.buffer.expect_last(self.schedule.placement.chunk_of(action.stage))

    def forward_backward(self, batch: Callable[[int], Batch]) -> tuple[torch.Tensor, BatchResult]:
        """Loss (a scalar on the device) and reduced main gradients of one batch, without an optimizer step."""
        self._begin()
        self.buffer.zero()
        self.routing.begin(self.optimizer.scale.value / self.schedule.m)
        run = self._run(batch, self.optimizer.scale.value)
        return self._mean_loss(list(run.losses.values()), self.buffer.finish), run

    def evaluate(self, batch: Callable[[int], Batch]) -> torch.Tensor:
        """The mean loss of a batch (a scalar on the device), without dropout. The trainer's state does not change."""
        self._begin()
        return self._mean_loss(self.executor.evaluate(batch))

    def _begin(self) -> None:
        """Let FP8 cast the weights anew, which may have changed since they were used, or may be on their way."""
        if self.store.fp8 is not None:
            self.store.fp8.begin(not self.buffer.gather_in_background)

    def step(self, batch: Callable[[int], Batch]) -> TrainStep:
        """Forward, backward, pipeline flush, reduction and optimizer step: strict optimizer semantics.

        Raises `DivergedError` if loss or gradients are not finite (see `optimizer.must_skip`); the parameters then stay
        as they were.
        """
        scale, lr = self.optimizer.scale.value, learning_rate(self.done, self.settings.optimizer)
        loss, run = self.forward_backward(batch)
        result = self.optimizer.step(lr, self.done + 1, loss)
        self.done += 1
        return TrainStep(self.done, result.loss, result.norm, lr, result.skipped, scale, run, self._dropped())

    def restore(self, done: int, seed: int) -> None:
        """Go on after `done` steps. Seed and step are the whole state of the random streams."""
        self.done, self.rng.seed = done, seed

    def _dropped(self) -> int:
        """What the experts of all ranks dropped in the batch; tensor ranks that drop alike count once."""
        if not self.routing.capacity_factor:
            return 0
        total = torch.tensor(self.routing.dropped, device=self.groups.device)
        self.groups.dp.all_reduce(total)
        if self.settings.parallel.whole_experts:
            self.groups.tp.all_reduce(total)
        return int(self.groups.pp.all_reduce(total).item())

    def _mean_loss(self, losses: list[torch.Tensor], meanwhile: Callable[[], object] = lambda: None) -> torch.Tensor:
        """The batch's mean loss, on every rank, from the microbatches' mean losses on the ranks of the last stage.

        `meanwhile` is called while the replicas sum it.
        All microbatches have equally many tokens, on every context rank: a mean of means is the mean over all tokens.
        """
        if losses:
            total = torch.stack(losses).double().mean() / self.groups.dp.size
        else:
            total = torch.zeros((), dtype=torch.float64, device=self.groups.device)
        summing = self.groups.dp.start_all_reduce(total)
        meanwhile()
        if summing is not None:
            summing.wait()
        return self.groups.pp.all_reduce(total)
