"""AdamW (Loshchilov and Hutter 2019) on a rank's own tensors, by PyTorch's fused kernel.

`torch.optim.AdamW` calls the same kernel, and takes the host several times as long: in every step it sorts its tensors
by device and type, and counts the steps of each. Here all are of one device and type, and their steps one number.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch.profiler import record_function

from ptdp_core.engine.settings import OptimizerSettings

RANGE = "Optimizer.step#AdamW.step"  # in a profile, as torch.optim.AdamW has it


class _Kind(NamedTuple):
    """The tensors that share a weight decay, by their places among all, with what the kernel takes of them."""

    weight_decay: float
    places: list[int]
    parameters: list[torch.Tensor]
    exp_avgs: list[torch.Tensor]
    exp_avg_sqs: list[torch.Tensor]


class AdamW:
    """Fused AdamW over `parameters` of one device and type, with weight decay for those that `are_matrices`.

    `updates` counts the steps, on the device.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], are_matrices: Sequence[bool], settings: OptimizerSettings
    ) -> None:
        self.settings, self.parameters = settings, list(parameters)
        self.exp_avgs, self.exp_avg_sqs = ([torch.zeros_like(x) for x in self.parameters] for _ in range(2))
        self.updates = torch.zeros((), device=parameters[0].device)
        self._kinds: list[_Kind] = []
        for is_matrix in (True, False):
            places = [i for i, x in enumerate(parameters) if are_matrices[i] is is_matrix and x.numel()]
            tensors = ([of[i] for i in places] for of in (self.parameters, self.exp_avgs, self.exp_avg_sqs))
            if places:
                self._kinds.append(_Kind(settings.weight_decay if is_matrix else 0.0, places, *tensors))

    @torch.no_grad()
    def step(
        self,
        gradients: list[torch.Tensor],
        lr: float,
        divisor: torch.Tensor | None = None,
        found_inf: torch.Tensor | None = None,
    ) -> None:
        """Update the parameters by their gradients, which are divided in place by `divisor`, if there is one.

        Where `found_inf`, fp32 on the device, is 1, all stays as it is: the kernel reads it there, so that the host
        need not wait to decide.
        """
        settings = self.settings
        if divisor is not None and divisor.dtype != torch.float32:  # the kernel divides by fp32
            if gradients[0].dtype != torch.float32:
                torch._foreach_div_(gradients, divisor)
                divisor = None
            else:
                divisor = divisor.float()
        with record_function(RANGE) if torch.autograd._profiler_enabled() else nullcontext():
            self.updates.add_(1)
            for kind in self._kinds:
                torch._fused_adamw_(
                    kind.parameters,
                    [gradients[i] for i in kind.places],
                    kind.exp_avgs,
                    kind.exp_avg_sqs,
                    [],
                    [self.updates] * len(kind.places),
                    lr=lr,
                    beta1=settings.beta1,
                    beta2=settings.beta2,
                    weight_decay=kind.weight_decay,
                    eps=settings.eps,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=divisor,
                    found_inf=found_inf,
                )
            if found_inf is not None:
                self.updates.sub_(found_inf)

    def state(self, place: int) -> dict[str, torch.Tensor]:
        """The parameter at that place and its moments, by their names in checkpoints."""
        kept = {"exp_avg": self.exp_avgs, "exp_avg_sq": self.exp_avg_sqs}
        return {"parameter": self.parameters[place], **{name: tensors[place] for name, tensors in kept.items()}}
