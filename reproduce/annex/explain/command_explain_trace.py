"""`reproduce explain trace`: a profiled training step beside the same step simulated. Imports no torch."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from reproduce.commands import options
from results.records.documents import print_document
from results.records.errors import DONE
from results.records.storage import write_files

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster, Estimate
    from reproduce.annex.explain.profiled_step import StepProfile

WIDTH = 100
HELP = """\
FILES are what torch.profiler's export_chrome_trace writes, one for each rank, .json or .json.gz, of one run, or what
nsys export --type sqlite writes. One of every pipeline rank is needed; those of replicas make the means surer.
docs/trace.md says how to make them.

Passes are found by their ranges (PP:2F0, Forward 3), else between messages; messages and collectives by the names of
NCCL's kernels and of gloo's. With --point the same step is simulated, and both are drawn in one picture.

example:
  reproduce explain trace trace/rank*.json.gz --point mine.json --cluster h100

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explain trace`."""
    parser.add_argument("files", metavar="FILE", nargs="+", type=options.path_of, help="the traces, one for each rank")
    parser.add_argument(
        "--point", metavar="POINT.json", help="the configuration that was run, as `reproduce simulate` reads it"
    )
    parser.add_argument("--step", type=int, metavar="N", help="which of the profiled steps (default: the last)")
    options.add_cluster(parser, "for a point that names none")
    options.add(parser, "program", "json", "results")


def run(parsed: Namespace) -> int:
    """Print bubble and time by phase, draw the timelines, return the exit code."""
    from ptdp_core.simulator import simulate
    from reproduce.annex.explain import profiled_step
    from reproduce.commands.simulate import read_point
    from reproduce.output.timeline import from_estimate
    from reproduce.output.timeline_files import figure_files
    from reproduce.output.traces import trace

    config, cluster = read_point([parsed.point], parsed.cluster, parsed.trainer) if parsed.point else (None, None)
    profile = profiled_step.profile_step(parsed.files, config.parallel if config else None, parsed.step)
    timelines, estimate = [profile.timeline], None
    if config and cluster:
        estimate = simulate(config, cluster, timeline=True)
        timelines.append(from_estimate(estimate))
    figures, notes = figure_files(timelines, "A profiled training step")
    paths = write_files(parsed.results / "trace", figures | {"trace.json": trace(timelines)})
    if parsed.json:
        document = profiled_step.document(profile, estimate, cluster)
        print_document("trace", 1, {**document, "files": [str(path) for path in paths]})
    else:
        _print(profile, estimate, cluster)
        from reproduce.output.terminal import files_line

        print(*notes, files_line(paths), sep="\n")
    return DONE


def _print(profile: "StepProfile", estimate: "Estimate | None", cluster: "Cluster | None") -> None:
    from reproduce.annex.explain.profiled_step import OF_PASSES, PHASES, simulated_phases
    from reproduce.output.columns import Column, Table
    from reproduce.output.tables import print_table
    from reproduce.output.terminal import console, wrapped

    out = console(WIDTH)
    simulated = simulated_phases(estimate, cluster) if estimate and cluster else {}
    names = PHASES | {name: f"of the passes: {text}, exposed" for name, (_, text) in OF_PASSES.items()}
    rows = [(text, profile.phases[name], simulated.get(name)) for name, text in names.items()]
    rows.append(("the step", profile.seconds, estimate.iteration_time if estimate else None))
    columns = [Column("time, mean over ranks", itemgetter(0)), Column("measured", itemgetter(1), "s", ".4f")]
    if estimate:
        columns.append(Column("simulated", itemgetter(2), "s", ".4f"))
    of = f"{profile.ranks} of {profile.world}" if profile.ranks < profile.world else f"{profile.ranks}"
    print_table(out, Table(columns, rows), f"step {profile.step}, traces of {of} ranks [measured]")
    for line in _lines(profile, estimate):
        wrapped(out, line)


def _lines(profile: "StepProfile", estimate: "Estimate | None") -> Sequence[str]:
    beside = over = ""
    if estimate:
        beside = f", simulated {estimate.idle_fraction:.1%} on {estimate.cluster}"
        over = f", simulated {estimate.bubble_fraction:.1%}"
    lines = [
        f"idle: {profile.phases['bubble'] / profile.seconds:.1%} of the step [measured]{beside}; the bubble over the "
        f"passes' time: {profile.bubble_fraction:.1%}{over}"
    ]
    if profile.host_gaps > 0.01 * profile.seconds:
        lines.append(f"of the bubble {profile.host_gaps:.4f} s although the input was there: the host was late")
    if profile.counted:
        lines.append("the passes have no ranges of their own: found between messages, and named in their order")
    return [*lines, *profile.notes]
