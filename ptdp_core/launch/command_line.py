"""Train a GPT model with PTD-P.

    ptdp-train --recipe tiny                                      one process
    ptdp-train --recipe tiny --set p=2 --set t=2 --ranks 4        four processes on this machine
    ptdp-train run.toml --set lr=3e-4                             a configuration file, changed
    ptdp-train --recipe tiny --schedule my.csv --ranks 4          with a pipeline schedule of one's own
    torchrun --nproc-per-node 4 -m ptdp.train --recipe tiny --set p=2 --set t=2
    ptdp-train --recipe gpt-175b --print-sbatch > job.sh          a Slurm batch script

Also as `reproduce train` and `python -m ptdp.train`. With --resume auto and a folder to save in, the same command
line starts a run and goes on with it. SIGTERM ends a run after the step at hand, saved if there is such a folder, and
so does a terminal that goes away.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptdp_core.engine.errors import DivergedError, EngineUnavailableError
from ptdp_core.engine.settings import Settings, check_world_size
from ptdp_core.engine.settings_file import SECTIONS, from_mapping, override, read
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import field_help
from ptdp_core.interrupts import EXIT_BASE, received, settle
from ptdp_core.launch import recipes, slurm
from ptdp_core.launch.local import RankError, launch, start_server
from ptdp_core.launch.outcome import Trained
from ptdp_core.schedules import registry
from results.records import errors

RANK_RUN = "ptdp_core.launch.rank_run"
ENDS = (
    *(errors.DONE, errors.INTERNAL, errors.USAGE, errors.UNAVAILABLE, errors.DIVERGED),
    *(errors.HUNG_UP, errors.INTERRUPTED, errors.TERMINATED),
)
FIELDS = "\n\n".join(f"[{section}]\n{field_help(part)}" for section, part in SECTIONS.items())
# Errors that say in one line what to do about them, wherever they are raised.
CODES = {error.__name__: errors.USAGE for error in (ValueError, ConfigurationError)}
CODES |= {EngineUnavailableError.__name__: errors.UNAVAILABLE, DivergedError.__name__: errors.DIVERGED}


def parser() -> argparse.ArgumentParser:
    """Make the parser of `ptdp-train`."""
    codes = "\n".join(f"  {code:>3}  {errors.MEANINGS[code]}" for code in ENDS)
    parser = argparse.ArgumentParser(
        "ptdp-train",
        description=__doc__,
        epilog=f"{FIELDS}\n\nexit codes:\n{codes}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the stack of a rank that failed or hangs")
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training run, all but --debug."""
    parser.add_argument("config", nargs="?", help="TOML file with [model], [parallel], [engine], [optimizer], [run]")
    parser.add_argument("--recipe", help=f"a named configuration instead of a file: {', '.join(recipes.RECIPES)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change one field of those below; repeatable"
    )
    parser.add_argument(
        "--schedule",
        metavar="NAME|FILE",
        help="pipeline schedule, by name or from a file (reproduce schedule checks it; a .py file is executed), with "
        "the p, v and B that it needs unless --set says others",
    )
    parser.add_argument("--data", help="text file or folder, .tokens file, or Megatron .bin/.idx pair")
    parser.add_argument(
        "--resume",
        metavar="auto|PATH",
        help="go on from a checkpoint, or the newest whole one in a folder; auto: in save, if it holds any",
    )
    parser.add_argument("--ranks", type=int, help="processes on this machine; p*t*d, and by default 1 if that is 1")
    parser.add_argument("--print-sbatch", action="store_true", help="print a Slurm batch script for this run, and stop")
    slurm.add_options(parser)


def configure(arguments: argparse.Namespace) -> Settings:
    """Make the settings that a command line asks for. Raises `ValueError` if they cannot work."""
    if bool(arguments.config) == bool(arguments.recipe):
        raise ValueError("config and recipe: both or neither given; needs one of them; try --recipe tiny")
    sections = read(arguments.config) if arguments.config else recipes.recipe(arguments.recipe)
    for section, choice in (("parallel", "attention"), ("parallel", "recompute"), ("engine", "kernels")):
        sections[section] = {choice: "auto"} | sections.get(section, {})
    sections = override(sections, arguments.set)
    if arguments.schedule:
        sections["parallel"] = scheduled(sections.get("parallel", {}), arguments.schedule, arguments.set)
    for field, value in (("data", arguments.data), ("load", arguments.resume)):
        if value is not None:
            sections.setdefault("run", {})[field] = value
    return from_mapping(sections)


def scheduled(parallel: Mapping[str, Any], schedule: str, assignments: Sequence[str]) -> dict[str, Any]:
    """The section [parallel] with a schedule, and with the sizes that it needs where no `name=value` says otherwise.

    A schedule from a table exists for one p, m and v, and one from a Python file is executed. Raises `ValueError` for
    an unknown name or a wrong file.
    """
    definition, v = registry.named_by_user(schedule), parallel.get("v", 1)
    sizes = {"v": v if definition.has_chunks(v) else definition.chunks[0]}
    given = {text.partition("=")[0].strip() for text in assignments}
    if definition.sizes:
        p, m, v = definition.sizes
        sizes = {"p": p, "v": v, "B": m * parallel.get("b", 1) * parallel.get("d", 1)}
    return {**parallel, "schedule": schedule, **{name: size for name, size in sizes.items() if name not in given}}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run(parser().parse_args(argv), argv)


@dataclass(frozen=True)
class _Command:
    """How the command reports: `name` stands before its errors; `report`, if given, is told how the run ended.

    With a `report` the log goes to stderr, as stdout is the report's.
    """

    name: str
    report: Callable[[Trained], None] | None

    def error(self, text: str, code: int) -> int:
        """Print an error, and return its exit code."""
        rank = os.environ.get("RANK")
        print(f"{self.name}:", *([f"rank {rank}:"] if rank else []), text, file=sys.stderr, flush=True)
        return code

    def finish(self, trained: Trained, settings: Settings) -> int:
        """Report a run that has ended in order, and return its exit code."""
        if self.report:
            self.report(trained)
            sys.stdout.flush()
        if not trained.terminated:
            return errors.DONE
        saved = f"saved {trained.saved}" if trained.saved else "nothing to save"
        code = EXIT_BASE + (received() or signal.SIGTERM)  # nothing came here where a rank alone got the signal
        return self.error(f"terminated after step {trained.step}, {saved}{_way_on(settings)}", code)


def run(
    arguments: argparse.Namespace,
    argv: Sequence[str],
    name: str = "ptdp-train",
    report: Callable[[Trained], None] | None = None,
) -> int:
    """Train as the command line `argv` says, which `arguments` were parsed from; returns the exit code.

    Errors begin with `name`. With a `report` the log goes to stderr, and `report` is told how the run ended.
    """
    command = _Command(name, report)
    try:
        settings = configure(arguments)
        job = slurm.job_of(arguments, arguments.print_sbatch)
        if arguments.print_sbatch:
            if arguments.ranks is not None:
                check_world_size(arguments.ranks, settings.parallel)
            print(slurm.sbatch(settings, slurm.without_options(argv, "--print-sbatch"), job), end="")
            return errors.DONE
        if "WORLD_SIZE" in os.environ and arguments.ranks is None:  # torchrun, or srun with the script printed above
            return _run_as_rank(settings, arguments.debug, command)
        return _run(settings, 1 if arguments.ranks is None else arguments.ranks, command)
    except RankError as error:
        if error.kind in CODES and not arguments.debug:
            return command.error(error.message, CODES[error.kind])
        line, *stack = str(error).splitlines()
        hint = "; --debug shows its stack" if stack and not arguments.debug else ""
        return command.error("\n".join([line, *stack] if arguments.debug else [line + hint]), errors.INTERNAL)
    except (ValueError, EngineUnavailableError) as error:
        return command.error(str(error), CODES.get(type(error).__name__, errors.USAGE))
    except ImportError as error:
        from ptdp_core.packages import not_installed  # imported here, as only errors need it

        missing = not_installed(error)
        if missing is None:
            raise
        return command.error(missing, errors.UNAVAILABLE)


def _run(settings: Settings, ranks: int, command: _Command) -> int:
    """Launch the ranks on this machine, and wait for them."""
    check_world_size(ranks, settings.parallel)
    start_server([RANK_RUN])  # it imports for seconds what ranks need, while this process checks the run
    from ptdp_core.launch.preflight import cpu_threads, preflight

    settings = preflight(settings)
    try:
        trained = launch(
            _train,
            ranks,
            (settings, command.report is not None),
            timeout=settings.run.timeout,
            process_group=ranks > 1,
            device=settings.engine.device,
            threads=cpu_threads(ranks),
            pass_on_termination=True,
        )[0]
    except KeyboardInterrupt:
        return command.error(f"interrupted{_way_on(settings)}", settle())
    return command.finish(trained, settings)


def _train(beat: Callable[[], None], settings: Settings, log_to_stderr: bool) -> Trained:
    """Run `rank_run.train`; imported here, as the launcher itself need not wait for its imports."""
    from ptdp_core.launch.rank_run import train

    # Where this is another process than the launcher's: only a command line can have put a Python file into settings.
    registry.named_by_user(settings.parallel.schedule)
    return train(beat, settings, log_to_stderr)


def _run_as_rank(settings: Settings, debug: bool, command: _Command) -> int:
    """Run as one of the ranks that torchrun or srun has started. Rank 0 checks what all ranks have in common."""
    check_world_size(int(os.environ["WORLD_SIZE"]), settings.parallel)
    from ptdp_core.launch.preflight import preflight

    is_first = os.environ.get("RANK", "0") == "0"
    settings = preflight(settings, thorough=is_first)
    code = errors.DONE
    try:
        if settings.parallel.n > 1:
            _meet(settings)
        trained = _train(lambda: None, settings, command.report is not None)
        if is_first:
            code = command.finish(trained, settings)
        elif trained.terminated:
            code = errors.TERMINATED
        if settings.parallel.n > 1:
            _part()
    except Exception as error:
        if debug:
            raise
        kind, text = type(error).__name__, " ".join(str(error).split())
        code = CODES.get(kind, errors.INTERNAL)
        command.error(text if kind in CODES else f"{kind}: {text}; --debug shows its stack", code)
    os._exit(code)  # not through destructors, which would wait for ranks that may have failed


def _meet(settings: Settings) -> None:
    """Join the other ranks. Raises `EngineUnavailableError` where the address they meet at cannot be used."""
    import torch.distributed as dist

    from ptdp_core.engine.groups import initialise, local_device

    try:
        initialise(local_device(settings.engine.device), settings.run.timeout)
    except dist.DistNetworkError as error:
        place = f"MASTER_ADDR={os.environ.get('MASTER_ADDR', '')}, MASTER_PORT={os.environ.get('MASTER_PORT', '')}"
        reason = " ".join(str(error).split())
        raise EngineUnavailableError(
            f"{place} cannot be used: {reason}; needs a free port on rank 0's host; try another MASTER_PORT"
        ) from error


def _part() -> None:
    """Leave the other ranks when all are done: NCCL's communicators want to be given up together."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


def _way_on(settings: Settings) -> str:
    """The end of a message: how to go on with a run that was stopped, if it saves."""
    return "; to go on: the same command with --resume auto" if settings.run.save else ""
