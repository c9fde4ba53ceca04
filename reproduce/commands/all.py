"""`reproduce all`: run every artifact, and answer whether the paper holds."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from reproduce.commands import options
from reproduce.commands import run as run_ids
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from results.records.errors import USAGE, NothingSelectedError

HELP = run_ids.HELP


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce all`: a paper, and those of `reproduce ID`."""
    options.add_paper(parser)
    run_ids.add_options(parser)


def run(parsed: Namespace) -> int:
    """Run every artifact that has the fidelity and the scale asked for."""
    broken = options.say_broken()
    artifacts = [catalog.load(id) for id in catalog.ids(parsed.paper)]
    code = run_ids.run_artifacts(offered(artifacts, parsed), parsed, brief=True, paper=parsed.paper)
    return code or (USAGE if broken else code)


def offered(artifacts: Sequence[Artifact], parsed: Namespace) -> list[Artifact]:
    """Those of the artifacts that have the fidelity and the scale asked for. Raises `NothingSelectedError` for none."""

    def offers(artifact: Artifact) -> bool:
        fidelities = [name for name in artifact.fidelities if parsed.fidelity in (None, name)]
        return any(parsed.scale in (None, *artifact.scales_at(name)) for name in fidelities)

    if not artifacts:
        raise NothingSelectedError("there is no artifact that can be read (reproduce list shows all)")
    if selected := [artifact for artifact in artifacts if offers(artifact)]:
        return selected
    asked = {"fidelity": parsed.fidelity, "scale": parsed.scale}
    what = " at ".join(f"{name} {value!r}" for name, value in asked.items() if value)
    raise NothingSelectedError(f"no artifact has {what} (reproduce list shows which has what)")
