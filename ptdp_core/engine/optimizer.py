"""AdamW on the flat buffers: fp32 master weights, loss scaling, clipping, cosine schedule, optionally sharded (ZeRO-1).

All ranks of a model-parallel group skip the same steps and clip by the same gradient norm. For this norm each parameter
counts on one rank only, and the squares are summed over the tensor-parallel axis, the pipeline and, if the optimizer is
sharded, the data-parallel axis; otherwise those of experts over the expert-parallel axis.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import cos, isfinite, nan, pi
from typing import NamedTuple

import torch

from ptdp_core.engine.adamw import AdamW
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
    master: torch.Tensor  # 1-D; a view of the parameter buffer, or an fp32 copy of it

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
        self._gradients: list[torch.Tensor] = []
        self._counted: list[torch.Tensor] = []
        self._uncounted: list[torch.Tensor] = []
        self._experts: list[torch.Tensor] = []
        for segments in side_by_side(part for part in parts if part.start < part.stop):
            whole, shard = slice(segments[0].start, segments[-1].stop), segments[0].entry.shard
            weights, gradient = buffer.param_data[whole], buffer.grad_data[whole]
            master = weights.to(buffer.dtype, copy=True) if self.mixed else weights
            self.stretches.append(SegmentStretch(segments, master))
            self._weights.append(weights)
            self._gradients.append(gradient)
            kind = self._counted if shard.counts(groups.tp.rank) else self._uncounted
            (self._experts if shard.parameter.stacked else kind).extend(gradient.split(NORM_PIECE))
        are_matrices = [stretch.segments[0].entry.shard.parameter.is_matrix for stretch in self.stretches]
        self.adam = AdamW([stretch.master for stretch in self.stretches], are_matrices, settings)

    def step(self, lr: float, step: int = 1, loss: torch.Tensor | None = None) -> StepResult:
        """Update the parameters from the reduced main gradients of step number `step`, whose mean loss is `loss`.

        The whole update is queued on the device, which leaves the parameters as they are if loss or norm is not finite.
        Only then does the host wait for these two numbers, once per step. They are the same on all ranks. Raises
        `DivergedError` (see `must_skip`).
        """
        scale, norm = self.scale.value, self._norm()
        norm /= scale
        loss = torch.zeros_like(norm) if loss is None else loss
        self._update(lr, scale, norm, norm + loss)
        norm_value, loss_value = on_host(torch.stack([norm, loss]))
        norm_value = norm_value if isfinite(norm_value) else nan
        skip = must_skip(step, loss_value, norm_value, self.scale, self.settings)
        self.scale.update(skip)
        return StepResult(loss_value, norm_value, skip)

    def _update(self, lr: float, scale: float, norm: torch.Tensor, finite: torch.Tensor) -> None:
        """Divide the gradients by the loss scale, clip them, and run AdamW.

        Unless the number `finite` is, AdamW leaves parameters and moments as they are.
        """
        found_inf = (finite - finite).isnan().float()
        self.adam.step(self._gradients, lr, divisor(norm, scale, self.settings.clip), found_inf)
        self.publish()

    @property
    def updates(self) -> int:
        """The number of steps that were not skipped, as AdamW counts it for its bias correction."""
        return int(self.adam.updates.item())

    def restore(self, updates: int, scale: float, good: int) -> None:
        """Restore AdamW's step count and the loss scale from a checkpoint whose tensors are loaded already."""
        self.adam.updates.fill_(updates)
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
        """Yield each segment that this rank updates with its parameter and moments (`AdamW.state`)."""
        for place, stretch in enumerate(self.stretches):
            state = self.adam.state(place)
            for segment in stretch.segments:
                part = slice(segment.start - stretch.start, segment.stop - stretch.start)
                yield segment, {kind: values[part] for kind, values in state.items()}

    def publish(self) -> None:
        """Copy the master weights to the parameters; if sharded, gather what the other replicas updated."""
        if self.mixed:
            torch._foreach_copy_(self._weights, self.adam.parameters)
        self.buffer.gather_parameters()

    def _norm(self) -> torch.Tensor:
        """The norm of the whole gradient, each parameter counted once; not finite if any rank's part is not."""
        squares = squared_norm(self._counted, self.groups.device)
        if self._uncounted:  # one that is infinite on this rank alone: then no rank may take the step
            squares += 0 * squared_norm(self._uncounted, self.groups.device)
        if self.buffer.has_experts:
            experts = squared_norm(self._experts, self.groups.device)
            if not self.buffer.sharded:  # of tensor ranks with experts of their own each then has the sum of all
                groups = self.groups
                experts = groups.ep.all_reduce(experts) / (groups.ep.size * groups.edp.size // groups.dp.size)
            squares += experts
        self.groups.tp.all_reduce(squares)
        self.groups.pp.all_reduce(squares)
        if self.buffer.sharded:
            self.groups.dp.all_reduce(squares)
        return squares.sqrt()


def squared_norm(gradients: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    """The sum of their squares in fp64, a scalar on the device."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device=device)
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)), dtype=torch.float64).square()


def divisor(norm: torch.Tensor, scale: float, clip: float) -> torch.Tensor | None:
    """What gradients are divided by, or None: by the loss scale, and so that their `norm` without it is at most `clip`.

    A clip of 0 is none.
    """
    if clip > 0:
        return ((norm + 1e-6) * (scale / clip)).clamp(min=scale)
    return torch.full_like(norm, scale) if scale != 1 else None


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
