"""`reproduce bench history NAME`: a benchmark's values over commits, with change points, as table and figure."""

from argparse import ArgumentParser, Namespace

from reproduce.commands import options
from results.records.errors import DONE, NothingSelectedError, UsageError, did_you_mean
from results.records.storage import write_files

HELP = """Every `reproduce bench run` is kept, by class of machine and commit, in DIR/benchmarks/NAME/history; no two
machines are mixed. A change point begins a new level of the values, at least 3% away (PELT, from the package ruptures;
pip install 'ptdp[history]'). The figure is in DIR/benchmarks/NAME/history.

examples:
  reproduce bench history simulator_rate
  reproduce bench history gemm --metric speed --point square/1024

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench history`."""
    parser.add_argument("name", metavar="NAME", help="a benchmark (reproduce bench list)")
    parser.add_argument("--metric", help="default: the first column of the benchmark's table")
    parser.add_argument("--point", metavar="KEY", help="the runs of this point, one by one")
    parser.add_argument("--quick", action="store_true", help="the runs with --quick")
    options.add_results(parser)


def run(parsed: Namespace) -> int:
    """Print a table and write a figure for each class of machine. Raises `ReproduceError`."""
    from tabulate import tabulate

    from benchmarks.harness import history as storage
    from benchmarks.harness.registry import find
    from reproduce.analysis import history
    from reproduce.output import theme

    benchmark = find(parsed.name)
    metric = parsed.metric or benchmark.columns[0]
    scale = "quick" if parsed.quick else "full"
    by_machine = storage.kept(parsed.results, benchmark.name, scale)
    if not by_machine:
        quick = " --quick" if parsed.quick else ""
        raise NothingSelectedError(
            f"no {scale} run of {benchmark.name} is kept in {parsed.results}; "
            f"try reproduce bench run {benchmark.name}{quick}"
        )
    for machine, records in by_machine.items():
        trends = history.trends(records, metric)
        names = [trend.point for trend in trends]
        if not trends:
            raise UsageError(
                f"--metric {metric}: no point of {benchmark.name} has it{did_you_mean(metric, benchmark.columns)}"
            )
        if parsed.point is not None and parsed.point not in names:
            raise UsageError(
                f"--point {parsed.point}: no such point{did_you_mean(parsed.point, names)}; "
                f"there are {', '.join(names)}"
            )
        chosen = [trend for trend in trends if parsed.point in (None, trend.point)]
        headings, rows = history.overview(chosen) if parsed.point is None else history.runs_of(chosen[0])
        print(f"{benchmark.name}, {metric}, on {machine}: {len(records)} runs [measured]\n")
        print(tabulate(rows, headings, tablefmt="pipe", disable_numparse=True), end="\n\n")
        with theme.style():
            files = theme.figure_files(
                history.draw(chosen, benchmark.name, metric, machine), f"{benchmark.name}: history", "trend"
            )
        folder = storage.folder(parsed.results, benchmark.name) / machine
        write_files(folder, files)
        print(f"figure: {folder / 'trend.png'}\n")
    return DONE
