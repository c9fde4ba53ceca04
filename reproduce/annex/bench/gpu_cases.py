"""The training steps that GPUs are asked to take: one GPU's, those of peers beside them, and several GPUs'."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.simulator import Software
from ptdp_core.simulator.programs import load_program

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SDPA: Mapping[str, Any] = {"attention": "sdpa", "recompute": "none"}
FAST: Mapping[str, Any] = {"fused_accumulation": True, "cuda_graph": True}


@dataclass(frozen=True)
class GpuCase:
    """A model, b, m and d, further settings of how it is trained, and of the engine (bf16, unless they say another)."""

    name: str
    model: ModelConfig
    b: int
    m: int
    parallel: Mapping[str, Any]
    engine: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any]) -> "GpuCase":
        """The case of a row of the table."""
        model, parallel, engine = (
            {field.name: row[field.name] for field in fields(part) if field.name in row}
            for part in (ModelConfig, ParallelConfig, EngineSettings)
        )
        b, usual = parallel.pop("b"), FAST if row.get("fast", True) else {}
        return cls(name, replace(_model(row["model"]), **model), b, row["m"], {**SDPA, **parallel}, {**usual, **engine})

    @property
    def layout(self) -> ParallelConfig:
        """How it is trained."""
        return ParallelConfig(b=self.b, B=self.b * self.m * self.parallel.get("d", 1), **self.parallel)

    @property
    def toy(self) -> ModelConfig:
        """The same kind of model in a size for any CPU."""
        sizes: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "seq": 32, "vocab": 256}
        widths = {"kv_heads": 2, "ffn_hidden": 128}
        return replace(self.model, **sizes | {name: to for name, to in widths.items() if getattr(self.model, name)})

    @property
    def software(self) -> Software:
        """The engine's own training program, as the simulator knows it."""
        return replace(
            load_program("ptdp").software,
            fused_cross_entropy=self.engine.get("kernels", "auto") != "reference",
            fused_accumulation=self.engine.get("fused_accumulation", False),
            overlapped_all_reduce=self.engine.get("overlapped_all_reduce", False),
            cuda_graphs=self.engine.get("cuda_graph", False),
        )


def _model(name: str) -> ModelConfig:
    own = dict(TABLES["models"][name])
    return replace(_model(own.pop("like")), **own) if "like" in own else ModelConfig(**own)


CASES, GPUS_CASES = (tuple(GpuCase.of(*row) for row in TABLES[table].items()) for table in ("one", "several"))
PEERS: dict[str, tuple[str, str, bool]] = {name: tuple(peer) for name, peer in TABLES["peers"].items()}


def named(name: str) -> GpuCase:
    """The case of that name."""
    return next(case for case in (*CASES, *GPUS_CASES) if case.name == name)
