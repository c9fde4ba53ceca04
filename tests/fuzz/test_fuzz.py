"""What reads files ends with a documented error, at once, in bounded memory, whatever stands in them.

Nothing is written outside the folder, and no program is started. The mutations follow from a seed: `PTDP_FUZZ_SEED`.
`tests/fuzz/formats.py` has the formats, `tests/fuzz/child.py` what is asserted of each example.
"""

import json
import os
from pathlib import Path

import pytest

from tests.fuzz.formats import FORMATS
from tests.processes import python

SEED = os.environ.get("PTDP_FUZZ_SEED", "1")
QUICK, MANY = 12, 1000

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc, for the limit on memory")


def findings(seed, count, *formats):
    """What `tests.fuzz.child` found, by format."""
    done = python("-m", "tests.fuzz.child", seed, count, *formats, env={"OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    assert list(found) == list(formats)
    return found


@pytest.fixture(scope="module")
def found():
    """A few examples of all formats, whose reading is imported once."""
    return findings("0", QUICK, *FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_few_mutated_files(found, name):
    assert found[name] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_mutated_files(name):
    assert findings(SEED, MANY, name)[name] == []
