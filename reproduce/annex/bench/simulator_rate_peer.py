"""What `simulator_rate` is compared with: Calculon's answer for a configuration, through its Python interface.

Calculon is not part of the project: the comparison is there where a copy is on the path (PYTHONPATH).
"""

import logging
from importlib import import_module
from typing import Any

from ptdp_core.config import TrainingConfig

# An A100's peak rates (FLOP/s, B/s), with more memory than any configuration needs: Calculon computes no time for one
# that does not fit.
_EFFICIENCY = [[0, 0.8]]
_LINK = {"efficiency": 0.8, "latency": 1e-5, "must_be_filled": False, "processor_usage": 0.0}
_OPERATIONS = {"p2p": [1.0, None], "reduce_scatter": [1.0, -1], "all_gather": [1.0, -1], "all_reduce": [2.0, -1]}
SYSTEM = {
    "matrix": {"float16": {"tflops": 312, "gflops_efficiency": _EFFICIENCY}},
    "vector": {"float16": {"tflops": 78, "gflops_efficiency": _EFFICIENCY}},
    "mem1": {"GiB": 10**6, "GBps": 2039, "MB_efficiency": _EFFICIENCY},
    "mem2": {"GiB": 512, "GBps": 32, "MB_efficiency": _EFFICIENCY},
    "processing_mode": "no_overlap",
    "networks": [
        _LINK | {"bandwidth": 300, "size": 8, "ops": _OPERATIONS},
        _LINK | {"bandwidth": 25, "size": 65536, "ops": _OPERATIONS},
    ],
}


def calculon_time(config: TrainingConfig) -> float:
    """Calculon's seconds for an iteration of a configuration of the paper's kind."""
    llm: Any = import_module("calculon.llm")
    system: Any = import_module("calculon.system")
    model, parallel = config.model, config.parallel
    application = {
        "hidden": model.hidden,
        "feedforward": model.mlp_width,
        "seq_size": model.seq,
        "attn_heads": model.heads,
        "attn_size": model.head_size,
        "num_blocks": model.layers,
    }
    execution = {
        "num_procs": parallel.n,
        "tensor_par": parallel.t,
        "pipeline_par": parallel.p,
        "data_par": parallel.d,
        "tensor_par_net": 0 if parallel.t <= 8 else 1,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": parallel.B,
        "microbatch_size": parallel.b,
        "datatype": "float16",
        "fused_activation": parallel.fused,
        "attention_type": "multihead",
        "activation_recompute": "full",
        "pipeline_interleaving": parallel.v,
        "optimizer_sharding": False,
        "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    machine = system.System(SYSTEM)
    peer = llm.Llm(llm.Llm.Application(application), logging.getLogger("calculon"))
    peer.compile(machine, llm.Llm.Execution.from_json(execution))
    peer.run(machine)
    return float(peer.get_total_time())
