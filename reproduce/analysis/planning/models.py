"""The paper's models by name, and the jobs of its Table 1. Imports no simulator."""

from collections.abc import Mapping
from typing import Any

from ptdp_core.config import ModelConfig
from reproduce.experiment import published


def models() -> dict[str, ModelConfig]:
    """The paper's models by their parameter counts: as printed in Tables 1 and 2, and rounded as in the text."""
    by_name: dict[str, ModelConfig] = {}
    gpt3 = published.configuration("fig_interleaved")  # 175 billion there, 174.6 in Table 2
    rows = [*published.rows("table_weak_scaling"), *({**gpt3, "parameters_B": n} for n in (175, 174.6))]
    for row in rows:
        model = ModelConfig(row["layers"], row["hidden"], row["heads"])
        billions = row["parameters_B"]
        by_name[f"{billions:g}b"] = model
        if billions >= 10:  # the paper's text says 145B and 530B
            by_name |= {f"{int(billions)}b": model, f"{round(billions)}b": model}
        if billions >= 1000:
            by_name["1t"] = model
    return by_name


def main_names() -> list[str]:
    """One name for each of the paper's models, by size."""
    names: dict[ModelConfig, str] = {}
    for name, model in models().items():
        names.setdefault(model, name)
    return [*sorted(names.values(), key=lambda name: float(name.rstrip("b"))), "1t"]


def table_1_row(model: ModelConfig) -> Mapping[str, Any] | None:
    for row in published.rows("table_weak_scaling"):
        if ModelConfig(row["layers"], row["hidden"], row["heads"]) == model:
            printed: Mapping[str, Any] = row
            return printed
    return None
