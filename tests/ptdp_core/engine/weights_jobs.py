"""What `test_weights` runs in ranks: the engine from given weights, against a given loss and given gradients."""

from typing import Any

import torch

from tests.ptdp_core.engine import jobs


def against(beat: Any, cases: list[dict[str, Any]], path: str) -> list[dict[str, float]]:
    """The largest errors of loss and gradients of one batch, for each case, relative to the whole tensor's largest."""
    other, rows = torch.load(path), []
    for case in cases:
        trainer, _ = jobs.make(case)
        for entry in trainer.buffer.entries:
            whole = other["weights"][entry.shard.parameter.name]
            entry.parameter.data.copy_(jobs.local_part(whole, entry).view_as(entry.parameter))
        loss, _ = trainer.forward_backward(jobs.feed(trainer, other["tokens"]))
        worst = 0.0
        for segment, _ in trainer.optimizer.states():  # what this rank has reduced: all, or 1/d if sharded
            entry = segment.entry
            whole = other["gradients"][entry.shard.parameter.name]
            part = jobs.local_part(whole, entry)[segment.start - entry.start : segment.stop - entry.start]
            error = (trainer.buffer.grad_data[segment.start : segment.stop] - part).abs().max() / whole.abs().max()
            worst = max(worst, error.item())
        rows.append({"loss": abs(loss.item() / other["loss"] - 1), "gradient": worst})
        beat()
    return rows
