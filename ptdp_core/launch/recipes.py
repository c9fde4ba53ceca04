"""Named recipes: complete configurations, as `[section] field = value`.

`tiny` and `small` train on the bytes of Python's standard library on any laptop; the others have the sizes of the
paper's experiments, for clusters.
"""

from copy import deepcopy
from typing import Any

from ptdp_core.engine.settings import Settings
from ptdp_core.engine.settings_file import from_mapping

Sections = dict[str, dict[str, Any]]


def _paper(layers: int, hidden: int, heads: int, **parallel: Any) -> Sections:
    """A model with s = 2048 and V = 51,200 as in the paper, trained in fp16 with a static loss scale."""
    return {
        "model": {"layers": layers, "hidden": hidden, "heads": heads, "seq": 2048, "vocab": 51200},
        "parallel": parallel,
        "engine": {"dtype": "fp16", "dropout": 0.1, "kernels": "auto"},
        "optimizer": {"lr": 1.5e-4, "min_lr": 1e-5, "warmup_steps": 100, "decay_steps": 1000, "loss_scale": 8192.0},
        "run": {"steps": 100},
    }


RECIPES: dict[str, Sections] = {
    "tiny": {  # 0.2M parameters: a step takes well under a second
        "model": {"layers": 4, "hidden": 64, "heads": 4, "seq": 64, "vocab": 256},
        "parallel": {"b": 8, "B": 64, "recompute": "none"},
        "optimizer": {"lr": 2e-3, "min_lr": 2e-4, "warmup_steps": 5, "decay_steps": 200},
        "run": {"steps": 50},
    },
    "small": {  # 10M parameters: minutes on a laptop, seconds on a GPU
        "model": {"layers": 12, "hidden": 256, "heads": 8, "seq": 256, "vocab": 256},
        "parallel": {"b": 4, "B": 32, "recompute": "none"},
        "optimizer": {"lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 50, "decay_steps": 1000},
        "run": {"steps": 500, "log_every": 10},
    },
    # 1.7 billion parameters on 32 GPUs: the first row of Table 1.
    "gpt-1b": _paper(24, 2304, 24, p=1, t=1, d=32, b=16, B=512),
    # GPT-3 on 96 GPUs with the interleaved schedule (Figure 12).
    "gpt-175b": _paper(96, 12288, 96, p=12, t=8, d=1, v=2, b=1, B=24),
    # 1 trillion parameters on 3072 GPUs: the last row of Table 1.
    "gpt-1t": _paper(128, 25600, 160, p=64, t=8, d=6, v=2, b=1, B=3072),
}


def recipe(name: str) -> Sections:
    """The sections of a recipe. Raises `ValueError` for an unknown name."""
    if name not in RECIPES:
        raise ValueError(f"recipe={name!r} is unknown; needs one of {', '.join(RECIPES)}; try tiny")
    return deepcopy(RECIPES[name])


def settings(name: str) -> Settings:
    """A recipe as settings. Raises `ValueError` for an unknown name."""
    return from_mapping(recipe(name))
