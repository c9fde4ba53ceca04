"""Which layers each pipeline stage holds, written as Megatron-Core's `--pipeline-model-parallel-layout` writes it.

`Et*3|(t*4|)*6t*3L` are eight stages: `E` is the embedding, `t` a transformer layer, `L` the output layer with the loss,
`|` ends a stage. `*n` repeats a letter or what is in parentheses; commas and blanks mean nothing. A stage may hold no
layer, as the first and the last one of `E|t*4|t*4|L`. `m` is a layer of multi-token prediction, behind the last `t`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby

from ptdp_core.errors import ConfigurationError

_REPEATED = re.compile(r"(?:\(([^()]*)\)|([^()*0-9]))\*([0-9]{1,9})(?![*0-9])")
_MOST = 1 << 16  # letters and bars of an expanded layout
_EXAMPLE = "'Et*3|(t*4|)*2t*3L'"


@lru_cache(maxsize=1024)
def stage_sizes(text: str) -> tuple[int, ...]:
    """The number of layers on each stage of a layout string, in model order.

    The first stage embeds and the last one has the output, so that these numbers are all that a layout says. Raises
    ConfigurationError for a string that is no layout.
    """
    stages = _expanded(text).split("|")
    letters = "".join(stages)
    if letters[:1] != "E" or letters[-1:] != "L" or letters.count("E") + letters.count("L") != 2:
        raise _wrong(text, "does not begin with the embedding and end with the loss", "one E, first, and one L, last")
    if stages[0][:1] != "E" or stages[-1][-1:] != "L":
        raise _wrong(text, "has an empty stage at an end", "E in the first stage and L in the last")
    if "t" in letters.partition("m")[2] or "m" in "".join(stages[:-1]):
        raise _wrong(text, "has an m elsewhere than behind the last layer", "each m in the last stage, before L")
    return tuple(stage.count("t") + stage.count("m") for stage in stages)


def layout_of(sizes: Iterable[int]) -> str:
    """The layout string of stages with so many layers each: `stage_sizes` backwards."""
    *before, last = ("t" if size == 1 else f"t*{size}" if size else "" for size in sizes)
    runs = [(stage, len(list(run))) for stage, run in groupby(before[1:])]
    middle = (f"({stage}|)*{count}" if count > 1 else f"{stage}|" for stage, count in runs)
    return "".join(("E", *(f"{stage}|" for stage in before[:1]), *middle, last, "L"))


def _expanded(text: str) -> str:
    """The layout with every repetition written out: letters and bars only."""

    def repeated(match: re.Match[str]) -> str:
        part, times = match[1] or match[2] or "", int(match[3])
        if len(part) * times > _MOST:
            raise _wrong(text, f"repeats something {times} times", f"at most {_MOST} letters and bars")
        return part * times

    letters, before = re.sub(r"[,\s]", "", text), ""
    while letters != before:
        if len(letters) > _MOST:
            raise _wrong(text, f"is {len(letters)} letters long", f"at most {_MOST} letters and bars")
        before, letters = letters, _REPEATED.sub(repeated, letters)
    wrong = re.search(r"[^EtmL|]", letters)
    if wrong:
        needed = "letters E, t, m, L, bars, and *n after a letter or after what is in parentheses"
        raise _wrong(text, f"has {wrong[0]!r} where none belongs", needed)
    return letters


def _wrong(text: str, what: str, needed: str) -> ConfigurationError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return ConfigurationError(f"pipeline_layout={shown!r} {what}; needs {needed}; try {_EXAMPLE}")
