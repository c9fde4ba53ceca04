"""Configurations that the page offers by one tap: a paper's, and what the planner found for later machines."""

from dataclasses import asdict
from typing import Any

from reproduce.planning.models import named

# Layouts as `reproduce plan MODEL --gpus N` gave them; the first and the third are the paper's (Figure 12, Table 1).
_SCENARIOS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("GPT-3 on 96 A100s", "175b", "selene", "300B", {"p": 12, "t": 8, "d": 1, "v": 1, "b": 1, "B": 60}),
    (
        *("Llama 3 70B on 512 H100s", "llama-3-70b", "h100", "15T"),
        {"p": 2, "t": 8, "d": 32, "v": 5, "b": 1, "B": 1024, "schedule": "interleaved", "recompute": "none"}
        | {"sequence_parallel": True, "attention": "sdpa", "sharded_optimizer": True},
    ),
    (
        *("1T on 3,072 A100s", "1t", "selene", "450B"),
        {"p": 64, "t": 8, "d": 6, "v": 1, "b": 1, "B": 3072},
    ),
)


def offered() -> list[dict[str, Any]]:
    """The scenarios: title, cluster, tokens of the whole run, and the whole configuration."""
    return [
        {"title": title, "cluster": cluster, "tokens": tokens, "configuration": asdict(named(model)) | layout}
        for title, model, cluster, tokens, layout in _SCENARIOS
    ]
