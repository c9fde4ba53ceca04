"""AdamW on the flat buffers: fp32 master weights, loss scaling, clipping, cosine schedule, optionally sharded (ZeRO-1).

Every rank of a model-parallel group decides alike whether to skip a step, and clips by the same norm: each parameter's
owner counts it once, and the sums travel over the tensor, the pipeline and, if sharded, the data-parallel axis.
"""

from dataclasses import dataclass
from math import cos, isfinite, pi

import torch
from torch import nn

from ptdp_core.engine.errors import DivergedError
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.param_and_grad_buffer import Entry, ParamAndGradBuffer
from ptdp_core.engine.settings import OptimizerSettings


def learning_rate(step: int, settings: OptimizerSettings) -> float:
    """Linear warm-up to `lr`, then half a cosine down to `min_lr` at `decay_steps`; `step` counts from 0."""
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
    good: int = 0

    @classmethod
    def of(cls, settings: OptimizerSettings) -> "LossScale":
        """As configured; a dynamic scale begins at 65536."""
        if settings.loss_scale == "dynamic":
            return cls(65536.0, dynamic=True, interval=settings.loss_scale_interval)
        return cls(float(settings.loss_scale))

    @property
    def can_fall(self) -> bool:
        """Whether an overflow may come from the scale itself, and a smaller one cure it."""
        return self.dynamic and self.value > 1

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
    """Whether a step leaves the parameters as they are, because its loss or gradient norm is not finite.

    That is routine under a loss scale that can still fall, and accepted with on_nan='skip'. Otherwise training has
    diverged: raises `DivergedError`.
    """
    if isfinite(loss) and isfinite(norm):
        return False
    if scale.can_fall or settings.on_nan == "skip":
        return True
    scaled = not scale.dynamic and scale.value > 1
    fix = "loss_scale='dynamic'" if scaled else f"an lr below {settings.lr:g}, or clip=1.0"
    raise DivergedError(
        f"loss={loss:g} with gradient norm {norm:g} at step {step}; needs finite numbers; "
        f"try {fix} (on_nan='skip' leaves such steps out)"
    )


@dataclass(frozen=True)
class Segment:
    """A run [start, stop) of the flat buffers inside one parameter: what this rank updates of it."""

    entry: Entry
    start: int
    stop: int
    master: nn.Parameter  # 1-D; a view of the parameter buffer, or an fp32 copy of it


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
        self.segments = [
            self._segment(entry, *buffer.owned(bucket))
            for bucket in buffer.buckets
            for entry in bucket.entries
            if max(buffer.owned(bucket)[0], entry.start) < min(buffer.owned(bucket)[1], entry.stop)
        ]
        decay = [s.master for s in self.segments if s.entry.shard.parameter.is_matrix]
        plain = [s.master for s in self.segments if not s.entry.shard.parameter.is_matrix]
        self.adam = torch.optim.AdamW(
            [
                {"params": group, "weight_decay": weight_decay}
                for group, weight_decay in ((decay, settings.weight_decay), (plain, 0.0))
                if group
            ],
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            fused=True,
        )
        for segment in self.segments:  # made here and not at the first step, so that a checkpoint can fill it
            self.adam.state[segment.master] = {
                "step": torch.zeros((), device=groups.device),
                "exp_avg": torch.zeros_like(segment.master, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(segment.master, requires_grad=False),
            }
        self._weights = [buffer.param_data[s.start : s.stop] for s in self.segments]
        self._counted: list[torch.Tensor] = []
        self._uncounted: list[torch.Tensor] = []
        for s in self.segments:
            counts = s.entry.shard.counts(groups.tp.rank)
            (self._counted if counts else self._uncounted).append(self._gradient(s))

    def _segment(self, entry: Entry, first: int, end: int) -> Segment:
        start, stop = max(first, entry.start), min(end, entry.stop)
        weights = self.buffer.param_data[start:stop]
        master = nn.Parameter(weights.to(self.buffer.dtype, copy=True) if self.mixed else weights)
        master.grad = self.buffer.grad_data[start:stop]
        return Segment(entry, start, stop, master)

    def _gradient(self, segment: Segment) -> torch.Tensor:
        return self.buffer.grad_data[segment.start : segment.stop]

    def step(self, lr: float, step: int = 1, loss: torch.Tensor | None = None) -> StepResult:
        """Update the parameters from the reduced main gradients of this step, which has this mean loss.

        All of it is queued on the device, which leaves the parameters as they are if loss or norm are not finite; only
        then does the host wait, once a step, for the two numbers. All ranks see the same. Raises `DivergedError` (see
        `must_skip`).
        """
        scale, norm = self.scale.value, self._norm()
        norm /= scale
        both = torch.stack([norm, torch.zeros_like(norm) if loss is None else loss])
        self._update(lr, scale, norm, both)
        norm_value, loss_value = on_host(both)
        skip = must_skip(step, loss_value, norm_value, self.scale, self.settings)
        self.scale.update(skip)
        return StepResult(loss_value, norm_value, skip)

    def _update(self, lr: float, scale: float, norm: torch.Tensor, both: torch.Tensor) -> None:
        """AdamW on gradients divided by the loss scale and clipped, unless one of the two numbers is not finite."""
        clip = self.settings.clip
        if clip > 0 or scale != 1:
            divisor = scale * ((norm + 1e-6) / clip).clamp(min=1.0) if clip > 0 else torch.full_like(norm, scale)
            if self.buffer.dtype == torch.float32:  # AdamW divides on its way
                self.adam.grad_scale = divisor.float()  # type: ignore[attr-defined]
            else:  # what it divides by is fp32
                self.buffer.grad_data.div_(divisor)
        self.adam.found_inf = (~torch.isfinite(both)).any().float()  # type: ignore[attr-defined]
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        self.publish()

    @property
    def updates(self) -> int:
        """Steps that were not skipped: Adam's own count."""
        return int(self.adam.state[self.segments[0].master]["step"].item())

    def restore(self, updates: int, scale: float, good: int) -> None:
        """Go on from a checkpoint whose tensors are already in place."""
        for segment in self.segments:
            self.adam.state[segment.master]["step"].fill_(updates)
        self.scale.value, self.scale.good = scale, good
        self.publish()

    def publish(self) -> None:
        """Copy master weights to the parameters, and share what a sharded optimizer updated."""
        if self.mixed:
            torch._foreach_copy_(self._weights, [segment.master.detach() for segment in self.segments])
        self.buffer.gather_parameters()

    def _norm(self) -> torch.Tensor:
        """The norm of the whole gradient, each parameter counted once; NaN if any rank's part is not finite."""
        counted, uncounted = (nn.utils.get_total_norm(part).double() for part in (self._counted, self._uncounted))
        finite = torch.isfinite(counted) & torch.isfinite(uncounted)
        sums = torch.stack([counted.to(self.groups.device) ** 2, (~finite).to(self.groups.device).double()])
        self.groups.tp.all_reduce(sums)
        self.groups.pp.all_reduce(sums)
        if self.buffer.sharded:
            self.groups.dp.all_reduce(sums)
        squares, overflows = sums
        return torch.where(overflows > 0, torch.nan, squares.sqrt())


def on_host(numbers: torch.Tensor) -> list[float]:
    """Numbers of the device, for which the host waits."""
    values: list[float] = numbers.tolist()
    return values
