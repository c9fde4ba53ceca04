"""A vocabulary that all pipeline ranks share, simulated: what a rank computes, and collectives as steps of a program.

The tables, and what each pass does, are those of `ptdp_core/schedules/vocabulary.py`.
"""

from collections.abc import Sequence
from itertools import accumulate

from ptdp_core.config import TrainingConfig
from ptdp_core.layers.blocks import LayerRun, VocabularyBlocks, shared_vocabulary
from ptdp_core.schedules.actions import Action, Vocabulary
from ptdp_core.schedules.lowering import Groups

# The collectives of a vocabulary that all ranks share, by the pass that gives them something: the embedded tokens (E),
# the last stage's output (F), what S knows of each token, the gradient of that output (T, or S with a correction), and
# that of the first stage's input (B).
SHARED = "EFSTB"


def blocks_of(config: TrainingConfig, fused_loss: bool) -> VocabularyBlocks:
    """What a rank computes of the vocabulary."""
    parallel = config.parallel
    run, corrects = LayerRun.of(parallel), parallel.vocabulary == "vocab-2"
    return shared_vocabulary(config.local_model, run, parallel.p, corrects, fused_loss)


def _waits(vocabulary: Vocabulary, action: Action) -> str:
    """The kind of the collective that a pass waits for; "" if it waits for none."""
    kind, stage, _ = action
    if kind == "F":
        return "E" if stage == 0 else ""
    if kind in "BI":
        return "T" if stage == vocabulary.last else ""
    return {"S": "F", "T": "S", "G": "B"}.get(kind, "")


def _gives(vocabulary: Vocabulary, action: Action) -> str:
    """The kinds of the collectives that a pass gives something to."""
    kind, stage, _ = action
    if kind == "F":
        return "F" if stage == vocabulary.last else ""
    if kind in "BI":
        return "B" if stage == 0 else ""
    if vocabulary.method == "vocab-2":
        return {"E": "E", "S": "ST"}.get(kind, "")
    return {"E": "E", "S": "S", "T": "T"}.get(kind, "")


def apart(groups: Groups[int], vocabulary: Vocabulary) -> Groups[int]:
    """The groups of a rank cut before each pass that waits for a collective, and after each that gives it something."""
    row: Groups[int] = []
    for sent, received, actions in groups:
        row.append((sent, received, []))
        for action in actions:
            if _waits(vocabulary, action):
                row.append(([], [], []))
            row[-1][2].append(action)
            if _gives(vocabulary, action):
                row.append(([], [], []))
    return row


def join(
    groups: Sequence[Groups[int]],
    partners: Sequence[dict[int, int]],
    vocabulary: Vocabulary,
    p: int,
    m: int,
    first_link: int,
) -> None:
    """Let the steps of ranks and collectives wait for each other. `partners` are by exchange, as in `_partners`."""
    starts = [0, *accumulate(len(row) + 1 for row in groups)]
    # A step that is done is known by the arrival at the next one. Of a collective the next one is its end.
    of_collective = {(kind, i): starts[p + k * m + i] for k, kind in enumerate(SHARED) for i in range(m)}
    for row, start in zip(groups[:p], starts, strict=False):
        for number, (_, _, actions) in enumerate(row, start):
            for action in actions:
                if waits := _waits(vocabulary, action):
                    partners[number][of_collective[waits, action.microbatch] + 1] = 0
                for kind in _gives(vocabulary, action):
                    link = first_link + SHARED.index(kind)
                    partners[of_collective[kind, action.microbatch]][number + 1] = link
                if vocabulary.method == "interlaced" and action.kind == "T":  # all ranks wait for the sum
                    partners[number + 1][of_collective["T", action.microbatch] + 1] = 0
