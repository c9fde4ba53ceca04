"""What `simulator_rate` is compared with: Calculon's answer for a configuration, through its Python interface.

Calculon is not part of the project: the comparison is there where a copy is on the path (PYTHONPATH).
"""

import logging
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from ptdp_core.config import TrainingConfig

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def system() -> dict[str, Any]:
    """The machine; of messages an operation has no second number, which Calculon calls None."""
    link = TABLE["link"]
    link |= {"ops": {name: [*numbers, None][:2] for name, numbers in link["ops"].items()}}
    return TABLE["system"] | {"networks": [link | own for own in TABLE["system"]["networks"]]}


def calculon_time(config: TrainingConfig) -> float:
    """Calculon's seconds for an iteration of a configuration of the paper's kind."""
    llm: Any = import_module("calculon.llm")
    model, parallel = config.model, config.parallel
    application = {
        "hidden": model.hidden,
        "feedforward": model.mlp_width,
        "seq_size": model.seq,
        "attn_heads": model.heads,
        "attn_size": model.head_size,
        "num_blocks": model.layers,
    }
    execution = TABLE["execution"] | {
        "num_procs": parallel.n,
        "tensor_par": parallel.t,
        "pipeline_par": parallel.p,
        "data_par": parallel.d,
        "tensor_par_net": 0 if parallel.t <= 8 else 1,
        "batch_size": parallel.B,
        "microbatch_size": parallel.b,
        "fused_activation": parallel.fused,
        "pipeline_interleaving": parallel.v,
    }
    machine = import_module("calculon.system").System(system())
    peer = llm.Llm(llm.Llm.Application(application), logging.getLogger("calculon"))
    peer.compile(machine, llm.Llm.Execution.from_json(execution))
    peer.run(machine)
    return float(peer.get_total_time())
