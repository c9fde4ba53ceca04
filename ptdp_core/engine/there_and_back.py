"""An operation that autograd passes, whose gradient is another operation's, as those of collectives are."""

from collections.abc import Callable
from typing import Any

import torch

Operation = Callable[[torch.Tensor], torch.Tensor]


class _ThereAndBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, there: Operation, back: Operation) -> torch.Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.back(grad), None, None


def there_and_back(x: torch.Tensor, there: Operation, back: Operation) -> torch.Tensor:
    """there(x), a new tensor, whose gradient goes `back` to that of x. Neither may hold x, which would live as long."""
    out: torch.Tensor = _ThereAndBack.apply(x, there, back)
    return out
