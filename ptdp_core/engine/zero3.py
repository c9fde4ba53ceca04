"""The ZeRO-3 baseline (Section 5.2): the same model, data and optimizer under FSDP2's `fully_shard`, without PTD-P.

Parameters, gradients and optimizer state are sharded over all ranks. Each layer's parameters are gathered for its
forward pass and again for its backward pass, and its gradients are reduce-scattered for every microbatch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from kernels import Kernels
from ptdp_core.engine.adamw import AdamW
from ptdp_core.engine.experts import Routing
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.model import Build, build_chunks
from ptdp_core.engine.optimizer import LossScale, StateSlice, divisor, learning_rate, must_skip, on_host, squared_norm
from ptdp_core.engine.parameters import TORCH_DTYPES, ParameterStore
from ptdp_core.engine.pipeline import Batch, BatchResult
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.engine.settings import OptimizerSettings, Settings
from ptdp_core.engine.trainer import TrainStep
from ptdp_core.layout import Parameter, ShardSpec
from ptdp_core.schedules import looped


class Zero3Trainer:
    """One training step under FSDP2 on d ranks, with the interface of `Trainer`."""

    def __init__(self, settings: Settings, groups: Groups, ops: Kernels) -> None:
        self.settings, self.groups, self.done = settings, groups, 0
        engine = settings.engine
        dtype = TORCH_DTYPES[engine.dtype]
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.rng = RNGTracker(engine.seed, groups.device)
        store = ParameterStore(engine.seed, groups.tp, groups.device, self.dtype)
        (self.model,) = build_chunks(Build(settings, store, ops, self.rng, Routing()), looped(1, 1), 0)
        global_parameters = {id(local.tensor): local.shard.parameter for local in store.parameters}
        # Matched by position: sharding replaces the model's parameters by other objects, in the same order.
        in_order = [global_parameters[id(parameter)] for parameter in self.model.parameters()]
        if groups.dp.size > 1:
            self._shard(dtype)
        self.optimizer = Zero3Optimizer(in_order, list(self.model.parameters()), groups, settings.optimizer)

    def _shard(self, dtype: torch.dtype) -> None:
        """Shard each layer, and what is outside of layers, over all ranks; `dtype` is that of the computation."""
        mesh = init_device_mesh(self.groups.device.type, (self.groups.dp.size,), mesh_dim_names=("dp",))
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=self.dtype)
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)

    def step(self, batch: Callable[[int], Batch]) -> TrainStep:
        """Forward and backward of m microbatches, then clipping and AdamW: the semantics of `Trainer.step`."""
        lr, m = learning_rate(self.done, self.settings.optimizer), self.settings.parallel.m
        optimizer, scale, clip = self.optimizer, self.optimizer.scale, self.settings.optimizer.clip
        optimizer.zero_gradients()
        run = BatchResult()
        for j in range(m):
            self.rng.begin(self.done, j * self.groups.dp.size + self.groups.dp.rank)
            loss = self.model(None, *batch(j))
            (loss * (scale.value / m)).backward()
            run.losses[j] = loss.detach()
        gradients = optimizer.gradients()
        squares = squared_norm(gradients, self.groups.device)
        mean_loss, squares = self._summed(torch.stack([self._share_of_loss(list(run.losses.values())), squares]))
        norm = squares.sqrt() / scale.value
        loss_value, norm_value = on_host(torch.stack([mean_loss, norm]))
        skip = must_skip(self.done + 1, loss_value, norm_value, scale, self.settings.optimizer)
        result = TrainStep(self.done + 1, loss_value, norm_value, lr, skip, scale.value, run)
        if not skip:
            optimizer.adam.step(gradients, lr, divisor(norm, scale.value, clip))
        scale.update(skip)
        self.done += 1
        return result

    def restore(self, done: int, seed: int) -> None:
        """Go on after `done` steps. Seed and step are the whole state of the random streams."""
        self.done, self.rng.seed = done, seed

    @torch.no_grad()
    def evaluate(self, batch: Callable[[int], Batch]) -> torch.Tensor:
        """The mean loss of a batch (a scalar on the device), without dropout."""
        self.model.eval()
        try:
            losses = [self.model(None, *batch(j)) for j in range(self.settings.parallel.m)]
        finally:
            self.model.train()
        return self._summed(self._share_of_loss(losses))

    def _share_of_loss(self, losses: list[torch.Tensor]) -> torch.Tensor:
        """What this rank adds to the batch's mean loss, from the mean losses of its microbatches."""
        return torch.stack(losses).double().mean() / self.groups.dp.size

    def _summed(self, numbers: torch.Tensor) -> torch.Tensor:
        """Sum numbers over the ranks in place, and return them."""
        if self.groups.dp.size > 1:
            dist.all_reduce(numbers, group=self.groups.dp.group)
        return numbers


class Zero3Optimizer:
    """AdamW on this rank's rows of what FSDP2 has sharded, with the loss scale and what checkpoints hold of it."""

    def __init__(
        self,
        global_parameters: Sequence[Parameter],
        parameters: Sequence[nn.Parameter],
        groups: Groups,
        settings: OptimizerSettings,
    ) -> None:
        self.global_parameters, self.parameters, self.groups = global_parameters, parameters, groups
        self.scale = LossScale.of(settings)
        self.adam = AdamW(own_rows(parameters), [p.dim() > 1 for p in parameters], settings)

    def zero_gradients(self) -> None:
        """Start a batch without gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def gradients(self) -> list[torch.Tensor]:
        """This rank's rows of the gradients."""
        return own_rows(parameter.grad for parameter in self.parameters if parameter.grad is not None)

    @property
    def updates(self) -> int:
        """The number of steps that were not skipped."""
        return int(self.adam.updates.item())

    def slices(self, *, saving: bool) -> Iterator[StateSlice]:
        """Yield the training state on this rank. Every value is on one rank only: FSDP2 gives each 1/d of the rows.

        The word embedding's rows include padding, which checkpoints do not hold.
        """
        for place, (parameter, tensor) in enumerate(zip(self.global_parameters, self.parameters, strict=True)):
            local = self.adam.state(place)
            rows = local["parameter"].shape[0]
            first = min(self.groups.dp.rank * -(-tensor.shape[0] // self.groups.dp.size), parameter.shape[0])
            shape, stop = (rows, *parameter.shape[1:]), min(first + rows, parameter.shape[0])
            flat = {kind: part.view(-1) for kind, part in local.items()}
            yield StateSlice(
                ShardSpec(parameter._replace(split=0), shape, first, stop), 0, flat["parameter"].numel(), flat
            )

    def restore(self, updates: int, scale: float, good: int) -> None:
        """Restore AdamW's step count and the loss scale from a checkpoint whose tensors are loaded already."""
        self.adam.updates.fill_(updates)
        self.scale.value, self.scale.good = scale, good


@torch.no_grad()
def own_rows(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """What this rank has of tensors that may be sharded, without their gradients."""
    return [x.to_local() if isinstance(x, DTensor) else x.detach() for x in tensors]
