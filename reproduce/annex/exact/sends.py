"""Counts on one rank how long a batch with overlapped exchanges holds on to the tensors that it sends."""

import gc
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from reproduce.annex.exact.step_profile import Counts, responsible


class Sends:
    """While `active()`: the tensors sent, as if every message arrived at once.

    When a message arrives depends on time, and so does when its tensor may go. Here a copy is sent in its place, and
    the tensor itself is said to be sent. What keeps it alive from then on is the engine, in which nothing depends on
    time.

    - `released[function]`: 'sent tensors released', which nothing refers to any more
    - `most`: how many sent tensors are alive at once, at most
    """

    def __init__(self) -> None:
        self.released: Counts = defaultdict(Counter)
        self.most = 0
        self._alive = 0
        self._references: list[weakref.ref[torch.Tensor]] = []
        self._works: list[dist.Work] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count what is sent inside, and at the end wait for the copies. Garbage collection is off as for a profile."""
        gc.collect()
        gc.disable()
        try:
            # Only there: the tied embedding's gradient is sent by name of the function, which must be PyTorch's.
            with patch("ptdp_core.engine.p2p.dist", SimpleNamespace(**vars(dist) | {"isend": self._isend})):
                yield
            for work in self._works:
                work.wait()
        finally:
            gc.enable()

    def _isend(self, tensor: torch.Tensor, **options: Any) -> "_Arrived":
        """Send a copy of a tensor, and note the tensor."""
        work = dist.isend(tensor.clone(), **options)
        assert work is not None
        self._works.append(work)
        self._references.append(weakref.ref(tensor, self._release))
        self._alive += 1
        self.most = max(self.most, self._alive)
        return _Arrived()

    def _release(self, reference: weakref.ref[torch.Tensor]) -> None:
        """Called when a tensor dies, by the function that lets it go."""
        self._alive -= 1
        self.released[responsible(sys._getframe(1))]["sent tensors released"] += 1


class _Arrived:
    """The `Work` of a message that has arrived."""

    def is_completed(self) -> bool:
        return True

    def wait(self) -> None:
        pass
