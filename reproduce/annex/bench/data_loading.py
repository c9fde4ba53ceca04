"""How many tokens a second one process reads from a token file, as microbatches in the engine's shuffled order."""

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import attempted, timed
from benchmarks.harness.timing import Samples, measure
from ptdp_core.engine.data import Sequences, open_tokens, write_tokens
from results.records import PointResult

VOCAB = 51200
TOKENS, QUICK_TOKENS = 2**24, 2**18
DRAWN = 20  # microbatches per sample


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield points for sequences of 128 and 2048 tokens, in microbatches of 1 and 8 sequences."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        path = Path(folder) / "random.tokens"
        ids = np.random.default_rng(0).integers(0, VOCAB, QUICK_TOKENS if setup.quick else TOKENS)
        write_tokens(path, ids, VOCAB)
        for s in (128, 2048):
            for b in (1, 8):
                metrics = timed(partial(_measure, setup, path, s, b), tokens=(b * s, "tokens/s"))
                yield attempted(setup, f"s={s}", f"b={b}", {"s": s, "b": b}, metrics)


def _measure(setup: Setup, path: Path, s: int, b: int) -> Samples:
    source, numbers, cpu = Sequences(open_tokens(path), s, VOCAB, seed=0), count(), torch.device("cpu")

    def draw() -> None:
        for _ in range(DRAWN):
            source.microbatch(next(numbers) * b, b, cpu)

    return measure(draw, samples=setup.samples).per(DRAWN)
