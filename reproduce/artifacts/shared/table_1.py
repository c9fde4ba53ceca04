"""The ten models of the paper's Table 1, each with the configuration of its run."""

from collections.abc import Mapping
from dataclasses import dataclass

from reproduce.experiment import published
from reproduce.experiment.artifact import Scalar


@dataclass(frozen=True)
class Row:
    """A model of Table 1: its size as printed ('1008B'), a key for points, its configuration, and its GPUs."""

    label: str
    key: str
    billions: float
    parameters: Mapping[str, Scalar]
    gpus: int


def rows() -> tuple[Row, ...]:
    """The rows in order, smallest first; `parameters` are those of a training configuration, d = n/(p*t)."""
    constants = published.constants()
    found = []
    for row in published.artifact("table_weak_scaling")["rows"]:
        size = f"{row['parameters_B']:g}"
        kept = ("layers", "hidden", "heads", "p", "t", "v", "b", "B", "data_parallel")
        parameters: dict[str, Scalar] = {name: row[name] for name in kept}
        parameters |= {"seq": constants["sequence_length"], "vocab": constants["vocabulary"]}
        parameters["d"] = row["gpus"] // (row["p"] * row["t"])
        found.append(Row(f"{size}B", f"model_{size.replace('.', '_')}b", row["parameters_B"], parameters, row["gpus"]))
    return tuple(found)
