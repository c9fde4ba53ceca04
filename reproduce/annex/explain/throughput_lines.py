"""The throughput lines of training programs: what a log says of its iterations, as one measurement.

Megatron-LM and NeMo print milliseconds or seconds of an iteration and teraFLOP/s per GPU, torchtitan tokens/s per GPU
and MFU, llm-foundry `throughput/device/...`, nanotron all of them with a K for thousands, nanoGPT milliseconds;
`reproduce train` writes a JSON object per step.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import model_flops_per_iteration
from results.records.errors import UsageError

NUMBER = r"\s*[:=]?\s*\"?\s*([\d][\d,]*\.?\d*(?:[eE][-+]?\d+)?)(?:([KMG])\b)?"
LOGS = "Megatron-LM, NeMo, torchtitan, llm-foundry, nanotron, nanoGPT or `reproduce train`"  # whose are read
LARGER = {None: 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
# By quantity the patterns of a log, each with the factor to base units.
PATTERNS: Mapping[str, Mapping[str, float]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@dataclass(frozen=True)
class Measurement:
    """What was measured of an iteration: its seconds, and per GPU tokens/s, model FLOP/s and MFU; None if not given."""

    seconds: float | None = None
    tokens_per_gpu: float | None = None
    flops_per_gpu: float | None = None
    utilization: float | None = None

    def iteration_time(self, config: TrainingConfig, peak_flops: float) -> float:
        """Seconds of an iteration of `config`, from the figure that says most directly how long it took."""
        if self.seconds is not None:
            return self.seconds
        parallel = config.parallel
        if self.tokens_per_gpu is not None:
            return parallel.B * config.model.seq / (parallel.n * self.tokens_per_gpu)
        flops = self.rate(peak_flops)
        assert flops is not None
        return model_flops_per_iteration(config.model, parallel.B) / (parallel.n * flops)

    def rate(self, peak_flops: float) -> float | None:
        """Model FLOP/s per GPU as the log itself counts them; None if it does not."""
        if self.flops_per_gpu is not None:
            return self.flops_per_gpu
        return None if self.utilization is None else self.utilization * peak_flops

    def flops_per_token(self, config: TrainingConfig, peak_flops: float) -> float | None:
        """Model FLOPs of a token that the log's rate and its time imply; None unless it has both."""
        rate = self.rate(peak_flops)
        if rate is None or (self.seconds is None and self.tokens_per_gpu is None):
            return None
        tokens = config.parallel.B * config.model.seq
        return rate * self.iteration_time(config, peak_flops) * config.parallel.n / tokens


def read_lines(text: str, name: str) -> Measurement:
    """The median of each figure over the lines of a log, the first of which warms up if there are three or more.

    Raises `UsageError` if no line has any, or one of them is 0.
    """
    found: dict[str, float] = {}
    for quantity, patterns in PATTERNS.items():
        values = [value for line in text.splitlines() if (value := _first(line, patterns)) is not None]
        if values:
            found[quantity] = median(values[1:] if len(values) > 2 else values)
    if not found:
        raise UsageError(f"{name}: no throughput in any line; needs a log of {LOGS}; try --seconds")
    for quantity, value in found.items():
        if value <= 0:
            raise UsageError(f"{name}: {quantity.replace('_', ' ')} is 0; needs a positive number")
    return Measurement(**found)


def _first(line: str, patterns: Mapping[str, float]) -> float | None:
    for pattern, factor in patterns.items():
        if match := re.search(pattern + NUMBER, line):
            return float(match[1].replace(",", "")) * LARGER[match[2]] * factor
    return None
