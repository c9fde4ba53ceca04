"""The models of the paper: Table 1's ten with the configuration of their runs."""

from typing import Any

from reproduce.experiment import published
from reproduce.experiment.sized import SIZES
from reproduce.experiment.sweep import Level

GPT_3 = "fig_interleaved"  # whose entry in `published.json` has the 175-billion model

# What models of Llama's kind share.
LLAMA: dict[str, Any] = {
    "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False, "bias": False,
}  # fmt: skip


def table_1() -> list[Level]:
    """Table 1's models, smallest first: size as printed ('1008B'), and the configuration of its run, d = n/(p*t)."""
    rows = []
    for printed in published.rows("table_weak_scaling"):
        size = f"{printed['parameters_B']:g}"
        kept = ("layers", "hidden", "heads", "p", "t", "v", "b", "B", "data_parallel")
        parameters = {**{name: printed[name] for name in kept}, **published.text_sizes("table_weak_scaling")}
        parameters["d"] = printed["gpus"] // (printed["p"] * printed["t"])
        rows.append(Level(f"{size}B", f"model_{size.replace('.', '_')}b", parameters))
    return rows


def levels_of_table_1(**parameters: Any) -> list[Level]:
    """The models of Table 1 with their names and further parameters."""
    return [Level(row.label, row.key, {**row.parameters, "model": row.label, **parameters}) for row in table_1()]


def sizes_of(model: str) -> dict[str, int]:
    """Layers, hidden size, heads, sequence length and vocabulary of '175B' (GPT-3) or '530B' (in Table 1)."""
    if model == "175B":
        return published.model(GPT_3)
    label = {"530B": "529.6B"}[model]
    (row,) = (row for row in table_1() if row.label == label)
    return {name: row.parameters[name] for name in SIZES}


# Figure 12's layers, fewer of them, on 4 stages of 2 GPUs, each stage a node: what its schedules are emulated with.
FIGURE_12_ON_A_LAPTOP: dict[str, Any] = {"gpus_per_node": 2, "layers": 8, "hidden": 12288, "heads": 96, "p": 4, "t": 2}
