"""Samples of mixed lengths, packed into sequences: how many there are, and how much of attention is left.

A sample attends to itself alone, so that a sequence of s tokens has the sum of l^2 over its samples for s^2 pairs. It
is simulated as attention over a window with as many pairs. Replicas get sequences at random, and all wait for the one
with most pairs: those of the slowest count. What microbatches of a pipeline differ in is left out.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, fsum, sqrt
from random import Random
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from results import opening
from results.records.errors import UsageError

STEPS = 20  # of a run, over which the slowest replica's pairs are a mean
MOST = 1_000_000  # samples


class Sample(NamedTuple):
    """Sequences made of the samples: the tokens of each, and its pairs of tokens of one sample."""

    tokens: int
    pairs: int


def read(given: Any) -> list[int]:
    """Lengths from a file with a length, or a length and how many have it, on each line; or a list of these.

    Raises `UsageError`, naming the line, for what is none.
    """
    lines: Sequence[Any] = given
    if isinstance(given, str):
        try:
            text = opening.read_text(given)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read lengths {given}: {error}; needs a length a line") from None
        lines = [line.partition("#")[0].replace(",", " ").split() for line in text.splitlines()]
    if not isinstance(lines, list | tuple):
        raise UsageError(f"lengths={given!r} are none; needs a file's path, or a list of lengths")
    lengths: list[int] = []
    for number, line in enumerate(lines, 1):
        words = line if isinstance(line, list | tuple) else [line]
        try:
            values = [int(word) for word in words]
        except (TypeError, ValueError):
            values = [0]
        if not values:
            continue
        if len(values) > 2 or min(values) < 1 or len(lengths) + values[-1] * (len(values) > 1) > MOST:
            raise UsageError(
                f"lengths, entry {number}: {' '.join(map(str, words))!r}; needs a length, or a length and how many "
                f"samples have it, at most {MOST:,} in all; try 512 1000"
            )
        lengths += [values[0]] * (values[1] if len(values) > 1 else 1)
    if not lengths:
        raise UsageError("lengths hold no sample; needs a length a line")
    return lengths


def packed(lengths: Iterable[int], seq: int) -> list[Sample]:
    """Sequences of at most `seq` tokens: the longest samples first, each where the least room is left for it."""
    rooms: list[tuple[int, int]] = []  # tokens left, and the sequence
    made: list[Sample] = []
    for length in sorted(lengths, reverse=True):
        if length > seq:
            raise UsageError(f"a sample of {length} tokens with seq={seq}; needs a sequence for it; try seq={length}")
        place = bisect_left(rooms, (length, -1))
        if place < len(rooms):
            room, number = rooms.pop(place)
            before = made[number]
            made[number] = Sample(before.tokens + length, before.pairs + length**2)
        else:
            room, number = seq, len(made)
            made.append(Sample(length, length**2))
        insort(rooms, (room - length, number))
    return made


def applied(config: TrainingConfig, lengths: Sequence[int]) -> tuple[TrainingConfig, str]:
    """The configuration of a step on B samples of these lengths, packed, and in words what became of them."""
    model, parallel = config.model, config.parallel
    rows = packed(lengths, model.seq)
    d, share = parallel.d * parallel.b, len(rows) / len(lengths)
    m = max(1, ceil(parallel.B * share / d))
    tokens, pairs = (fsum(part) / len(rows) for part in zip(*rows, strict=True))
    random, slowest = Random(0), []
    for _ in range(STEPS):
        of_replicas = [fsum(row.pairs for row in random.choices(rows, k=m * parallel.b)) for _ in range(parallel.d)]
        slowest.append(max(of_replicas) / (m * parallel.b))
    whole, most = model.seq**2, min(fsum(slowest) / STEPS, model.seq**2)
    mean = fsum(lengths) / len(lengths)
    said = (
        f"lengths: B={parallel.B} samples of {mean:,.0f} tokens in the mean, packed into B={m * d} sequences, "
        f"{tokens / model.seq:.0%} of them filled ({mean / model.seq:.0%} padded each alone); attention to "
        f"{pairs / whole:.1%} of all pairs, {most / whole:.1%} in the slowest of {parallel.d} replicas"
    )
    window = max(1, ceil(model.seq - sqrt(whole - most)))
    if model.window or model.layer_pattern:
        said += "; beside windows of its own, or state-space layers, it is taken as over whole sequences"
    elif window < model.seq:
        model = replace(model, window=window, window_layers="w")
    return TrainingConfig(model, replace(parallel, B=m * d)), said
