"""`reproduce bench bisect NAME --good A --bad B`: the commit that changed a benchmark's value, by `git bisect run`."""

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from results import ROOT
from results.records.errors import DONE, INCONCLUSIVE

HELP = """Measures the good and the bad commit, each with its own code, in a worktree; then git bisect does in between.
A commit counts as good if its median of three quick runs is nearer to the good one's. What cannot run the benchmark is
skipped. Good and bad have to differ by 5%; the point that differs most is followed, or --point.

examples:
  reproduce bench bisect simulator_rate --good v0.1 --bad HEAD

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench bisect`."""
    parser.add_argument("name", metavar="NAME", help="a benchmark (reproduce bench list)")
    parser.add_argument("--good", required=True, metavar="REF", help="a commit before the change")
    parser.add_argument("--bad", required=True, metavar="REF", help="a later commit, with the change")
    parser.add_argument("--metric", help="default: the first column of the benchmark's table")
    parser.add_argument("--point", metavar="KEY", help="default: the point that differs most")


def run(parsed: Namespace, project: Path = ROOT) -> int:
    """Bisect and print; done if one commit is left. Raises `ReproduceError`."""
    from benchmarks.gate.trees import resolve
    from benchmarks.harness import bisection
    from benchmarks.harness.registry import find

    benchmark = find(parsed.name)
    metric = parsed.metric or benchmark.columns[0]
    good, bad = (resolve(project, ref) for ref in (parsed.good, parsed.bad))
    with bisection.worktree(project, good) as tree:
        of_good = bisection.medians(tree, benchmark.name, metric)
        bisection.git(tree, "checkout", "--detach", "--quiet", bad)
        of_bad = bisection.medians(tree, benchmark.name, metric)
        point = bisection.most_different(of_good, of_bad, parsed.point)
        print(f"{point}, {metric}: {of_good[point]:.6g} at {good[:10]}, {of_bad[point]:.6g} at {bad[:10]}", flush=True)
        printed = bisection.find(tree, benchmark.name, metric, point, (good, of_good[point]), (bad, of_bad[point]))
        tried = re.findall(r"^value: (.*)$", printed, re.MULTILINE)
        first = re.search(r"^([0-9a-f]{40}) is the first bad commit$", printed, re.MULTILINE)
        print(*(f"  tried: {text}" for text in tried), sep="\n")
        if not first:
            print(f"not found: {printed.strip().splitlines()[-1]}")
            return INCONCLUSIVE
        print(f"first bad commit: {bisection.git(tree, 'log', '-1', '--format=%h %ad %s', '--date=short', first[1])}")
    return DONE
