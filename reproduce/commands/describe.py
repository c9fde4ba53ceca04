"""`reproduce describe`: what an artifact shows and judges, as plain text, quickly."""

import shutil
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from reproduce.commands.list import summary
from reproduce.commands.options import add
from reproduce.experiment import catalog
from reproduce.experiment.artifact import IN_THE_PAPER, Artifact
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
    text = "also the size of each scale, and of each claim its sentence and how it is tested, by which rules"
    parser.add_argument("--full", action="store_true", help=text)
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
        print_description(artifact, parsed.program, parsed.full)
    return DONE


def print_description(artifact: Artifact, program: str, full: bool) -> None:
    """The description for people, with the command that runs it, of this program: a screen of it unless in full."""
    print(f"{artifact.id}: {artifact.label} ({artifact.place})")
    print(f"{artifact.title}\n")
    _wrap(artifact.description)
    print()
    for scale in artifact.scales:
        points = artifact.points(scale)
        series = [name for name in dict.fromkeys(point.series for point in points) if name]
        _wrap(f"points     {len(points)} at scale {scale}" + (f": {'; '.join(series)}" if series else ""), "", " " * 11)
        if full and scale != artifact.scales[0]:
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
    if full:
        _print_tests(artifact)
    elif artifact.claims:
        _print_claims(artifact)
        print(f"\nin full: {program} describe {artifact.id} --full", end="")
    print(f"\nrun it: {program} {artifact.id}")


def _print_claims(artifact: Artifact) -> None:
    """The claims that an artifact judges, a line for each sentence."""
    shown = [claim for claim in artifact.claims if not claim.id.endswith(IN_THE_PAPER)]
    twins = len(artifact.claims) - len(shown)
    print(f"\nclaims     {len(shown)} sentences{f', {twins} of them also on the published points' if twins else ''}:")
    widest = max((len(claim.id) for claim in shown), default=0)
    for claim in shown:
        sentence = textwrap.shorten(plain(claim.sentence), max(40, _width() - widest - 4), placeholder=" ...")
        print(f"  {claim.id:<{widest}}  {sentence}")


def _print_tests(artifact: Artifact) -> None:
    """Each claim with its sentence and how it is tested, and what the words of the tests mean."""
    if artifact.claims:
        print("\nhow they are judged:")
        for name, meaning in words_used(artifact.claims).items():
            _wrap(f"{name}: {meaning}", "  ", "    ")
        print("\nclaims that it judges:")
    for claim in artifact.claims:
        print(f"\n  {claim.id}  [{claim.place}; fidelity {claim.fidelity} or better]")
        _wrap(quoted(plain(claim.sentence), claim.place), "    ")
        _wrap(f"tested as: {what_is_tested(claim, artifact)}", "    ")


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
    indent = indent or first
    print(textwrap.fill(text, _width(), initial_indent=first, subsequent_indent=indent, break_long_words=False))


def _width() -> int:
    return max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
