"""Which layers each pipeline stage has, and which stages each pipeline rank (Section 2.2.2)."""

from functools import lru_cache


@lru_cache(maxsize=256)
def stage_layers(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each of `stages` equal stages, in model order."""
    if layers % stages:
        raise ValueError(
            f"layers={layers} does not split into {stages} equal stages; needs a multiple of {stages}; "
            f"try layers={-(-layers // stages) * stages}"
        )
    size = layers // stages
    return tuple(range(stage * size, (stage + 1) * size) for stage in range(stages))


def rank_stages(p: int, v: int, pp: int) -> range:
    """The stages of pipeline rank pp in the order of its v model chunks: chunk c is stage c*p + pp of p*v."""
    return range(pp, p * v, p)


def chunk_layers(layers: int, p: int, v: int, pp: int) -> tuple[range, ...]:
    """The layers of each of the v model chunks of pipeline rank pp."""
    stages = stage_layers(layers, p * v)
    return tuple(stages[stage] for stage in rank_stages(p, v, pp))
