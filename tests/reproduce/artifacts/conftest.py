"""The default result of the artifact that a module of tests is about."""

import pytest

from reproduce.experiment import catalog
from reproduce.running import runner


@pytest.fixture(scope="module")
def record(request, tmp_path_factory):
    """The result of the artifact `ID` for the tests in `test_ID.py`; nothing is drawn."""
    artifact = catalog.load(request.path.stem.removeprefix("test_"))
    return runner.run(runner.plan(artifact, tmp_path_factory.mktemp(artifact.id)), ["reproduce", artifact.id]).record
