"""One training step by schedule, in real ranks on this machine: every schedule has to give 1F1B's gradients.

`compare_gradients` starts p processes once and runs all schedules in them, one after the other, in fp64. The model is
the smallest that has a layer for each stage. By strict optimizer semantics (Section 2.2) the order of the passes must
not matter, up to the order in which gradients are summed.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, padded_vocab
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.launch.local import launch
from ptdp_core.layout import OUTPUT, WORD_EMBEDDING
from ptdp_core.schedules import MODES, Schedule, build, register_table

if TYPE_CHECKING:
    import torch

    Gradients = dict[str, torch.Tensor]

HIDDEN, HEADS, SEQUENCE, VOCABULARY, SEED = 8, 2, 4, 50, 1234
TIMEOUT = 60.0  # seconds without a finished step: the ranks hang


class GradientDifference(NamedTuple):
    """A schedule's gradients against 1F1B's, compared parameter by parameter.

    `equal` of the `parameters` have gradients that are the same to the bit. `parameter` has the `largest` difference,
    relative to the largest element of its gradient.
    """

    schedule: str
    exchange: str
    parameters: int
    equal: int
    largest: float
    parameter: str


def compare_gradients(schedules: Sequence[Schedule], exchanges: Sequence[str] = MODES) -> list[GradientDifference]:
    """Train a step with each schedule and each kind of exchange. All schedules have the same p and m.

    Raises `ptdp_core.launch.local.RankError` if a rank fails or hangs.
    """
    p, m = schedules[0].p, schedules[0].m
    runs = [(build("1f1b", p, m), exchanges[0]), *((table, exchange) for exchange in exchanges for table in schedules)]
    layers = max(table.stages for table, _ in runs)
    by_rank = launch(gradients_in_rank, p, (runs, layers), timeout=TIMEOUT)
    # A run's gradients are those of all ranks together, each of which has the parameters of its stages.
    reference, *others = [
        {name: grad for gradients in ranks for name, grad in gradients.items()} for ranks in zip(*by_rank, strict=True)
    ]
    return [_difference(run, reference, gradients) for run, gradients in zip(runs[1:], others, strict=True)]


def _difference(run: tuple[Schedule, str], reference: "Gradients", gradients: "Gradients") -> GradientDifference:
    """Compare a run's gradients with the reference; a parameter without a gradient differs infinitely."""
    errors = {
        name: ((gradients[name] - grad).abs().max() / grad.abs().max()).item() if name in gradients else float("inf")
        for name, grad in reference.items()
    }
    worst = max(errors, key=errors.__getitem__)
    equal = sum(error == 0 for error in errors.values())
    return GradientDifference(run[0].name, run[1], len(errors), equal, errors[worst], worst)


def gradients_in_rank(beat: Callable[[], None], runs: Sequence[tuple[Schedule, str]], layers: int) -> list["Gradients"]:
    """Return this rank's gradients by parameter, one dictionary for each run; every rank runs this function."""
    import torch

    from kernels import select
    from ptdp_core.engine.groups import Groups
    from ptdp_core.engine.trainer import Trainer

    model = ModelConfig(layers, HIDDEN, HEADS, SEQUENCE, VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (runs[0][0].m, SEQUENCE + 1), generator=torch.Generator().manual_seed(SEED))
    groups, gradients = None, []
    for table, exchange in runs:
        register_table(table)
        parallel = ParallelConfig(p=table.p, v=table.v, B=table.m, schedule=table.name, recompute="none")
        engine = EngineSettings(exchange=exchange, dtype="fp64", device="cpu", seed=SEED)
        groups = groups or Groups.create(parallel)
        trainer = Trainer(Settings(model, parallel, engine), groups, select("reference"))
        trainer.forward_backward(lambda j: (tokens[j : j + 1, :-1], tokens[j : j + 1, 1:]))
        buffer = trainer.buffer
        own = {entry.shard.parameter.name: buffer.main_grad(entry).clone() for entry in buffer.entries}
        for name in (WORD_EMBEDDING, OUTPUT) if parallel.vocabulary else ():  # of which each rank has a part
            if name in own:
                rows = groups.pp.all_gather(own[name].reshape(-1)).view(-1, HIDDEN)
                own[name] = rows[: padded_vocab(VOCABULARY, 1)]
        gradients.append(own)
        beat()
    return gradients
