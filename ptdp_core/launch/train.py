"""Train a GPT model with PTD-P.

    ptdp-train --recipe tiny                                      one process
    ptdp-train --recipe tiny --set p=2 --set t=2 --ranks 4        four processes on this machine
    ptdp-train run.toml --set lr=3e-4                             a configuration file, changed
    torchrun --nproc-per-node 4 -m ptdp_core.launch --recipe tiny --set p=2 --set t=2
    ptdp-train --recipe gpt-175b --print-sbatch > job.sh          a Slurm batch script

Also as `python -m ptdp_core.launch`. Exit codes: 0 done, 1 a rank failed, 2 the configuration or the data cannot
work, 130 interrupted by Ctrl-C, 143 ended by SIGTERM.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ptdp_core.config import field_help
from ptdp_core.engine.checkpoint import Checkpoints, resolve
from ptdp_core.engine.data import Samples, open_tokens, prepare
from ptdp_core.engine.groups import Groups, check_world_size, initialise, local_device
from ptdp_core.engine.report import Report
from ptdp_core.engine.settings import SECTIONS, Settings, from_mapping, override, read
from ptdp_core.engine.trainer import Trainer, TrainStep
from ptdp_core.engine.zero3 import Zero3Trainer
from ptdp_core.interrupts import exit_code
from ptdp_core.launch import recipes, slurm
from ptdp_core.launch.local import RankError, launch

OK, FAILED, USAGE = 0, 1, 2


def train(beat: Callable[[], None], settings: Settings) -> list[float]:
    """Train on this rank as configured; returns the loss of every step. `beat` is called after each."""
    from kernels import select

    device = local_device(settings.engine.device)
    groups = Groups.create(settings.parallel, device) if settings.parallel.n > 1 else Groups.alone(device)
    ops = select(settings.kernels, device)
    samples = Samples(open_tokens(settings.run.data), settings.model.seq, settings.model.vocab, settings.engine.seed)
    trainer = (Zero3Trainer if settings.parallel.data_parallel == "zero3" else Trainer)(settings, groups, ops)
    report = Report(settings, device) if groups.rank == 0 else None
    checkpoints, consumed = None, 0
    if isinstance(trainer, Trainer) and (settings.run.save or settings.run.load):
        checkpoints = Checkpoints(settings.run.save, trainer, background=settings.run.async_save)
        if settings.run.load:
            progress = checkpoints.load(settings.run.load)
            consumed, samples.seed = progress.consumed, progress.seed
    if report:
        report.begin(trainer.done)
    beat()
    losses = []
    while trainer.done < settings.run.steps:
        start = time.perf_counter()
        result = one_step(trainer, samples, settings, groups, consumed)
        consumed += settings.parallel.B
        losses.append(result.loss)
        if report:
            report.step(result, time.perf_counter() - start)
        every = settings.run.save_every
        if checkpoints and settings.run.save and every and trainer.done % every == 0:
            path = checkpoints.save(consumed)
            if report:
                report.note(f"saved {path}" if not settings.run.async_save else f"saving {path} in the background")
        beat()
    if checkpoints:
        checkpoints.wait()
    if report:
        report.close()
    return losses


def one_step(
    trainer: Trainer | Zero3Trainer, samples: Samples, settings: Settings, groups: Groups, consumed: int
) -> TrainStep:
    """Train on the B samples from `consumed` on: number j*d + r of its microbatches is replica r's microbatch j."""
    b = settings.parallel.b

    def batch(j: int) -> Any:
        return samples.microbatch(consumed + (j * groups.dp.size + groups.dp.rank) * b, b, groups.device)

    return trainer.step(batch)


def preflight(settings: Settings) -> Settings:
    """Everything that can be found wrong before a process starts: data, checkpoint. Fills in the token file."""
    if settings.parallel.data_parallel == "zero3" and (settings.run.save or settings.run.load):
        raise ValueError(
            "save or load with data_parallel='zero3', which has no checkpoints; needs 'local' or 'torch'; "
            "try without them"
        )
    path = prepare(settings.run.data, settings.run.cache)
    Samples(open_tokens(path), settings.model.seq, settings.model.vocab, settings.engine.seed)
    load = settings.run.load and str(resolve(settings.run.load))
    return replace(settings, run=replace(settings.run, data=str(path), load=load))


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        "ptdp-train",
        description=__doc__,
        epilog="\n\n".join(f"[{section}]\n{field_help(part)}" for section, part in SECTIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("config", nargs="?", help="TOML file with [model], [parallel], [engine], [optimizer], [run]")
    p.add_argument("--recipe", help=f"a named configuration instead of a file: {', '.join(recipes.RECIPES)}")
    p.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change one field of those below; repeatable"
    )
    p.add_argument("--data", help="text file or folder, .tokens file, or Megatron .bin/.idx pair")
    p.add_argument("--ranks", type=int, help="processes on this machine; p*t*d, and by default 1 if that is 1")
    p.add_argument("--print-sbatch", action="store_true", help="print a Slurm batch script for this run, and stop")
    p.add_argument("--per-node", type=int, default=8, help="ranks per Slurm node (8)")
    return p


def configure(arguments: argparse.Namespace) -> Settings:
    """Settings from the command line; `ValueError` if they cannot work."""
    if bool(arguments.config) == bool(arguments.recipe):
        raise ValueError("config and recipe: both or neither given; needs one of them; try --recipe tiny")
    sections = read(arguments.config) if arguments.config else recipes.recipe(arguments.recipe)
    assignments = list(arguments.set)
    sections = override(sections, assignments)
    if arguments.data:
        sections.setdefault("run", {})["data"] = arguments.data
    return from_mapping(sections)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse_args(argv)
    try:
        settings = configure(arguments)
        if arguments.print_sbatch:
            rest = [a for a in argv if a != "--print-sbatch"]
            print(slurm.sbatch(settings, rest, arguments.per_node), end="")
            return OK
        return _run(settings, arguments.ranks)
    except ValueError as error:
        print(f"ptdp-train: {error}", file=sys.stderr)
        return USAGE
    except RankError as error:
        print(f"ptdp-train: {error}", file=sys.stderr)
        return FAILED


def _run(settings: Settings, ranks: int | None) -> int:
    world = os.environ.get("WORLD_SIZE")
    if world is not None and ranks is None:  # torchrun, or srun with the script of --print-sbatch
        check_world_size(int(world), settings.parallel)
        settings = preflight(settings)
        if settings.parallel.n > 1:
            initialise(local_device(settings.engine.device), settings.run.timeout)
        train(lambda: None, settings)
        return OK
    check_world_size(ranks or 1, settings.parallel)
    local_device(settings.engine.device)
    settings = preflight(settings)
    n = settings.parallel.n
    try:
        launch(train, n, (settings,), timeout=settings.run.timeout, process_group=n > 1, device=settings.engine.device)
    except KeyboardInterrupt:
        save = settings.run.save
        resume = f"; to go on: the same command with --set load={save}" if save and settings.run.save_every else ""
        print(f"ptdp-train: interrupted{resume}", file=sys.stderr)
        return exit_code()
    return OK
