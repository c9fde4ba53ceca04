"""`reproduce describe`: what an artifact shows and judges, as plain text, quickly."""

import shutil
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from reproduce.commands.list import summary
from reproduce.commands.options import add
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import OURS, quoted
from reproduce.experiment.published import numbers_set_with
from reproduce.experiment.tested_as import what_is_tested, words_used
from reproduce.output.terminal import LONG_S, spoken
from reproduce.output.verdicts import plain
from results.records.documents import print_document
from results.records.errors import DONE, UnavailableError, UsageError
from results.records.storage import DEFAULT_RESULTS


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce describe`."""
    parser.add_argument("ids", nargs="+", metavar="ID", help="an artifact (reproduce list shows them)")
    add(parser, "json")


def run(parsed: Namespace) -> int:
    """Print what an artifact shows and judges."""
    ids = catalog.named(parsed.ids)
    if len(ids) > 1:
        raise UsageError(f"one artifact at a time, not {', '.join(ids)}; try reproduce describe {ids[0]}")
    artifact = catalog.load(ids[0])
    if parsed.json:
        told = ("id", "sentence", "place", "fidelity", "tolerance")
        claims = [
            {name: getattr(claim, name) for name in told} | {"tested_as": what_is_tested(claim, artifact)}
            for claim in artifact.claims
        ]
        print_document("describe", 1, {**summary(artifact), "description": artifact.description, "claims": claims})
    else:
        print_description(artifact, parsed.program)
    return DONE


def print_description(artifact: Artifact, program: str) -> None:
    """The description for people, with the command that runs it, of this program."""
    print(f"{artifact.id}: {artifact.label} ({artifact.place})")
    print(f"{artifact.title}\n")
    _wrap(artifact.description)
    print()
    for scale in artifact.scales:
        points = artifact.points(scale)
        series = [name for name in dict.fromkeys(point.series for point in points) if name]
        _wrap(f"points     {len(points)} at scale {scale}" + (f": {'; '.join(series)}" if series else ""), "", " " * 11)
        if scale != artifact.scales[0]:
            _wrap(artifact.at(scale).description, " " * 11)
    print(f"metric     {artifact.main.heading}")
    for scale in artifact.scales:
        if (heading := artifact.at(scale).main.heading) != artifact.main.heading:
            print(f"           {heading} at scale {scale}")
    for number, row in enumerate(_fidelities(artifact)):
        print(f"{'' if number else 'fidelity':<11}{row}{'' if number else ', the default'}")
    if artifact.place != OURS:
        print(f"tolerance  a point is reproduced within {artifact.tolerance:.0%} of the paper's value")
    if set_with := numbers_set_with(artifact.cluster, artifact.id):
        _wrap(
            f"{'set with':<11}values published here: {', '.join(set_with)} of {artifact.cluster}; where a simulation "
            "of these values agrees, that is no evidence",
            indent=" " * 11,
        )
    if artifact.claims:
        print("\nhow they are judged:")
        for name, meaning in words_used(artifact.claims).items():
            _wrap(f"{name}: {meaning}", "  ", "    ")
        print("\nclaims that it judges:")
    for claim in artifact.claims:
        print(f"\n  {claim.id}  [{claim.place}; fidelity {claim.fidelity} or better]")
        _wrap(quoted(plain(claim.sentence), claim.place), "    ")
        _wrap(f"tested as: {what_is_tested(claim, artifact)}", "    ")
    print(f"\nrun it: {program} {artifact.id}")


def _fidelities(artifact: Artifact) -> Iterator[str]:
    """Each fidelity with its scales, and how long a run takes on the default cluster if that is long."""
    from reproduce.running import fidelities, runner  # here: importing this module stays quick without the simulator

    for name in artifact.fidelities:
        plans = [runner.plan(artifact, DEFAULT_RESULTS, name, scale) for scale in artifact.scales_at(name)]
        try:
            times = {plan.scale: sum(fidelities.expected_seconds(plan)) for plan in plans}
        except UnavailableError as error:  # its annex is not in this copy
            yield f"{name}: {error}"
            continue
        takes = {scale: f", about {spoken(time)}" if time >= LONG_S else "" for scale, time in times.items()}
        between = "; " if any(takes.values()) else ", "
        yield f"{name} (scale {between.join(scale + duration for scale, duration in takes.items())})"


def _wrap(text: str, first: str = "", indent: str = "") -> None:
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    indent = indent or first
    print(textwrap.fill(text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False))
