"""What the tests emulate: small models, whose passes take milliseconds; and a run that lasts, as a program."""

import sys

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.emulation import emulate
from ptdp_core.simulator import load_cluster

SMALL = ModelConfig(layers=8, hidden=1024, heads=16, vocab=1024)
LARGE = ModelConfig(layers=8, hidden=12288, heads=96)


def config(model: ModelConfig = SMALL, **parallel: object) -> TrainingConfig:
    return TrainingConfig(model, ParallelConfig(**parallel))  # type: ignore[arg-type]


if __name__ == "__main__":  # runs for a minute, unless it is stopped
    lasting = config(LARGE, p=4, b=1, B=64)
    print("emulating", flush=True)
    try:
        emulate(lasting, load_cluster(), gpus_per_node=1)
    except KeyboardInterrupt:
        sys.exit(130)
