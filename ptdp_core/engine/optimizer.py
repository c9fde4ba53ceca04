"""AdamW on the flat buffers: fp32 master weights, loss scaling, clipping, cosine schedule, optionally sharded (ZeRO-1).

All ranks of a model-parallel group skip the same steps and clip by the same gradient norm. For this norm each parameter
counts on one rank only, and the squares are summed over the tensor-parallel axis, the pipeline and, if the optimizer is
sharded, the data-parallel axis; otherwise those of experts over the expert-parallel axis.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, isfinite, pi
from typing import NamedTuple

import torch
from torch import nn

from ptdp_core.engine.errors import DivergedError
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.param_and_grad_buffer import BufferEntry, ParamAndGradBuffer
from ptdp_core.engine.settings import OptimizerSettings
from ptdp_core.layout import ShardSpec

LONGEST = 1 << 30  # elements that AdamW updates as one tensor: kernels may count them in 32 bits
NORM_PIECE = 1 << 20  # elements of which a CPU sums the squares in fp32 before it goes on in fp64


def learning_rate(step: int, settings: OptimizerSettings) -> float:
    """The learning rate of a step, counted from 0: linear warm-up to `lr`, then half a cosine down to `min_lr`.

    It reaches `min_lr` at `decay_steps`; without steps to decay over it stays `lr`.
    """
    if step < settings.warmup_steps:
        return settings.lr * (step + 1) / settings.warmup_steps
    if settings.decay_steps <= settings.warmup_steps:
        return settings.lr
    share = min(1.0, (step - settings.warmup_steps) / (settings.decay_steps - settings.warmup_steps))
    return settings.min_lr + 0.5 * (settings.lr - settings.min_lr) * (1 + cos(pi * share))


@dataclass
class LossScale:
    """The factor on the loss that keeps small fp16 gradients alive: static, or dynamic (halved when they overflow)."""

    value: float = 1.0
    dynamic: bool = False
    interval: int = 1000  # good steps before a dynamic scale doubles
    good: int = 0  # good steps since the scale changed

    @classmethod
    def of(cls, settings: OptimizerSettings) -> "LossScale":
        """The scale that the settings ask for; a dynamic one begins at 65536."""
        if settings.loss_scale == "dynamic":
            return cls(65536.0, dynamic=True, interval=settings.loss_scale_interval)
        return cls(float(settings.loss_scale))

    def update(self, overflow: bool) -> None:
        """Adjust a dynamic scale after a step."""
        if not self.dynamic:
            return
        self.good = 0 if overflow else self.good + 1
        if overflow:
            self.value = max(1.0, self.value / 2)
        elif self.good == self.interval:
            self.value, self.good = self.value * 2, 0


def must_skip(step: int, loss: float, norm: float, scale: LossScale, settings: OptimizerSettings) -> bool:
    """Whether to skip a step because its loss or gradient norm is not finite: the parameters then stay as they are.

    This is normal while a dynamic loss scale adapts, and accepted with on_nan='skip'. Otherwise training has diverged,
    and `DivergedError` is raised.
    """
    if isfinite(loss) and isfinite(norm):
        return False
    if (scale.dynamic and scale.value > 1) or settings.on_nan == "skip":  # a smaller scale may avoid an overflow
        return True
    scaled = not scale.dynamic and scale.value > 1
    fix = "loss_scale='dynamic'" if scaled else f"an lr below {settings.lr:g}, or clip=1.0"
    raise DivergedError(
        f"loss={loss:g} with gradient norm {norm:g} at step {step}; needs finite numbers; "
        f"try {fix} (on_nan='skip' leaves such steps out)"
    )


class StateSlice(NamedTuple):
    """A part of a parameter's training state: elements [start, stop) of the flattened local part `shard`.

    `tensors` are views of these elements, 1-D, by what they are: 'parameter' (master), 'exp_avg' and 'exp_avg_sq'.
    """

    shard: ShardSpec
    start: int
    stop: int
    tensors: dict[str, torch.Tensor]


def adamw(
    matrices: Sequence[nn.Parameter], vectors: Sequence[nn.Parameter], settings: OptimizerSettings, device: torch.device
) -> torch.optim.AdamW:
    """Fused AdamW, with weight decay for matrices only.

    Its state exists before the first step, so that checkpoints can be loaded into it.
    """
    adam = torch.optim.AdamW(
        [
            {"params": list(group), "weight_decay": weight_decay}
            for group, weight_decay in ((matrices, settings.weight_decay), (vectors, 0.0))
            if group
        ],
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )
    for parameter in (*matrices, *vectors):
        adam.state[parameter] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }
    return adam


def state_of(adam: torch.optim.AdamW, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
    """A parameter and its moments, by their names in checkpoints."""
    state = adam.state[parameter]
    return {"parameter": parameter.detach(), "exp_avg": state["exp_avg"], "exp_avg_sq": state["exp_avg_sq"]}


@dataclass(frozen=True)
class Segment:
    """The part of one parameter that this rank updates: elements [start, stop) of the flat buffers."""

    entry: BufferEntry
    start: int
    stop: int


@dataclass(frozen=True)
class SegmentStretch:
    """Segments of one kind that lie side by side: to AdamW one parameter, so that the host's time is not theirs."""

    segments: list[Segment]
    master: nn.Parameter  # 1-D; a view of the parameter buffer, or an fp32 copy of it

    @property
    def start(self) -> int:
        """Its first element in the flat buffers."""
        return self.segments[0].start


@dataclass(frozen=True)
class StepResult:
    """Loss, gradient norm before clipping (without the loss scale), and whether the step was skipped (`must_skip`)."""

    loss: float
    norm: float
    skipped: bool


class Optimizer:
    """AdamW over the segments of the flat buffers that this rank owns."""

    def __init__(self, buffer: ParamAndGradBuffer, groups: Groups, settings: OptimizerSettings) -> None:
        self.buffer, self.groups, self.settings = buffer, groups, settings
        self.scale = LossScale.of(settings)
        self.mixed = buffer.param_data.dtype != buffer.dtype
        owned = [(entry, *buffer.owned(bucket)) for bucket in buffer.buckets for entry in bucket.entries]
        parts = [Segment(entry, max(first, entry.start), min(end, entry.stop)) for entry, first, end in owned]
        self.stretches: list[SegmentStretch] = []
        self._weights: list[torch.Tensor] = []
        by_decay: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        self._counted: list[torch.Tensor] = []
        self._uncounted: list[torch.Tensor] = []
        self._experts: list[torch.Tensor] = []
        for segments in side_by_side(part for part in parts if part.start < part.stop):
            whole, shard = slice(segments[0].start, segments[-1].stop), segments[0].entry.shard
            weights, gradient = buffer.param_data[whole], buffer.grad_data[whole]
            master = nn.Parameter(weights.to(buffer.dtype, copy=True) if self.mixed else weights)
            master.grad = gradient
            self.stretches.append(SegmentStretch(segments, master))
            self._weights.append(weights)
            by_decay[shard.parameter.is_matrix].append(master)
            kind = self._counted if shard.counts(groups.tp.rank) else self._uncounted
            (self._experts if shard.parameter.stacked else kind).extend(gradient.split(NORM_PIECE))
        self.adam = adamw(by_decay[True], by_decay[False], settings, groups.device)

    def step(self, lr: float, step: int = 1, loss: torch.Tensor | None = None) -> StepResult:
        """Update the parameters from the reduced main gradients of step number `step`, whose mean loss is `loss`.

        The whole update is queued on the device, which leaves the parameters as they are if loss or norm is not finite.
        Only then does the host wait for these two numbers, once per step. They are the same on all ranks. Raises
        `DivergedError` (see `must_skip`).
        """
        scale, norm = self.scale.value, self._norm()
        norm /= scale
        norm_and_loss = torch.stack([norm, torch.zeros_like(norm) if loss is None else loss])
        self._update(lr, scale, norm, norm_and_loss)
        norm_value, loss_value = on_host(norm_and_loss)
        skip = must_skip(step, loss_value, norm_value, self.scale, self.settings)
        self.scale.update(skip)
        return StepResult(loss_value, norm_value, skip)

    def _update(self, lr: float, scale: float, norm: torch.Tensor, norm_and_loss: torch.Tensor) -> None:
        """Divide the gradients by the loss scale, clip them, and run AdamW.

        Unless norm and loss are finite, AdamW leaves parameters and moments as they are.
        """
        clip = self.settings.clip
        if clip > 0 or scale != 1:
            divisor = scale * ((norm + 1e-6) / clip).clamp(min=1.0) if clip > 0 else torch.full_like(norm, scale)
            if self.buffer.dtype == torch.float32:  # fused AdamW divides by `grad_scale` itself
                self.adam.grad_scale = divisor.float()  # type: ignore[attr-defined]
            else:  # `grad_scale` would be fp32, not fp64
                self.buffer.grad_data.div_(divisor)
        # Fused AdamW reads this flag on the device, so that the host need not wait to decide.
        self.adam.found_inf = (~torch.isfinite(norm_and_loss)).any().float()  # type: ignore[attr-defined]
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        self.publish()

    @property
    def updates(self) -> int:
        """The number of steps that were not skipped, as AdamW counts it for its bias correction."""
        return int(self.adam.state[self.stretches[0].master]["step"].item())

    def restore(self, updates: int, scale: float, good: int) -> None:
        """Restore AdamW's step count and the loss scale from a checkpoint whose tensors are loaded already."""
        for stretch in self.stretches:
            self.adam.state[stretch.master]["step"].fill_(updates)
        self.scale.value, self.scale.good = scale, good
        self.publish()

    def slices(self, *, saving: bool) -> Iterator[StateSlice]:
        """Yield the training state that this rank reads from a checkpoint: all that its optimizer updates.

        With `saving`, yield what it writes. Exactly one rank then writes each value: of what all d replicas of a
        model-parallel rank have, each writes 1/d.
        """
        shares = {id(entry): self.buffer.share(bucket) for bucket in self.buffer.buckets for entry in bucket.entries}
        for segment, whole in self.states():
            entry, start, stop = segment.entry, segment.start, segment.stop
            if saving and not entry.shard.counts(self.groups.tp.rank):
                continue
            if saving:
                first, end = shares[id(entry)]
                start, stop = max(start, first), min(stop, end)
            if start < stop:
                part = slice(start - segment.start, stop - segment.start)
                tensors = {kind: values[part] for kind, values in whole.items()}
                yield StateSlice(entry.shard, start - entry.start, stop - entry.start, tensors)

    def states(self) -> Iterator[tuple[Segment, dict[str, torch.Tensor]]]:
        """Yield each segment that this rank updates with its parameter and moments (`state_of`)."""
        for stretch in self.stretches:
            state = state_of(self.adam, stretch.master)
            for segment in stretch.segments:
                part = slice(segment.start - stretch.start, segment.stop - stretch.start)
                yield segment, {kind: values[part] for kind, values in state.items()}

    def publish(self) -> None:
        """Copy the master weights to the parameters; if sharded, gather what the other replicas updated."""
        if self.mixed:
            torch._foreach_copy_(self._weights, [stretch.master.detach() for stretch in self.stretches])
        self.buffer.gather_parameters()

    def _norm(self) -> torch.Tensor:
        """The norm of the whole gradient, each parameter counted once; NaN if any rank's part is not finite."""
        # A gradient that counts on another rank may still be infinite on this one: then no rank may take the step.
        sums = self._square(self._counted, self._uncounted)
        if self.buffer.has_experts:
            experts = self._square(self._experts)
            if not self.buffer.sharded:  # of tensor ranks with experts of their own each then has the sum of all
                groups = self.groups
                experts = groups.ep.all_reduce(experts) / (groups.ep.size * groups.edp.size // groups.dp.size)
            sums += experts
        self.groups.tp.all_reduce(sums)
        self.groups.pp.all_reduce(sums)
        if self.buffer.sharded:
            self.groups.dp.all_reduce(sums)
        squares, overflows = sums
        return torch.where(overflows > 0, torch.nan, squares.sqrt())

    def _square(self, counted: Sequence[torch.Tensor], uncounted: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """The squared norm of the counted gradients, and 1 if these or the others are not finite, else 0."""
        norm, other = (nn.utils.get_total_norm(part).double() for part in (counted, uncounted))
        finite = torch.isfinite(norm) & torch.isfinite(other)
        return torch.stack([norm.to(self.groups.device) ** 2, (~finite).to(self.groups.device).double()])


def side_by_side(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Join segments of one kind each of which begins where the one before ends, up to `LONGEST` elements."""
    stretches: list[list[Segment]] = []
    for segment in segments:
        first, last = (stretches[-1][0], stretches[-1][-1]) if stretches else (segment, segment)
        goes_on = last.stop == segment.start and last.entry.kind == segment.entry.kind
        if not goes_on or segment.stop - first.start > LONGEST:
            stretches.append([])
        stretches[-1].append(segment)
    return stretches


def on_host(numbers: torch.Tensor) -> list[float]:
    """The values of a tensor on the device; the host waits until they are computed."""
    values: list[float] = numbers.tolist()
    return values
