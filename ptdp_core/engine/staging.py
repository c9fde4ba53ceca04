"""Copies of a rank's training state in the host's memory, from which a checkpoint is written while training goes on."""

from collections.abc import Mapping

import torch

from ptdp_core.engine.checkpoint_tensors import Pieces


class Staging:
    """Buffers in the host's memory, made at the first save and kept for the next ones.

    For a GPU they are pinned: it then copies at the full rate of its link, and the host does not wait. The copies are
    queued on the compute stream, so that the next optimizer step, which overwrites the state, comes after them. (No GPU
    has run this yet.)
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._buffers: dict[tuple[str, torch.Size], torch.Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def copy(self, pieces: Mapping[str, Pieces]) -> None:
        """Replace all tensors of `pieces` by copies. They must not be read before `wait` has returned."""
        for name, piece in pieces.items():
            for offsets, tensor in piece.held.items():
                buffer = self._buffers.get((name, offsets))
                if buffer is None:
                    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._on_gpu)
                    self._buffers[name, offsets] = buffer
                piece.held[offsets] = buffer.copy_(tensor, non_blocking=True)
        if self._on_gpu:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def wait(self) -> None:
        """Wait until a GPU has made the copies; on a CPU they are there when `copy` returns."""
        if self._copied is not None:
            self._copied.synchronize()
