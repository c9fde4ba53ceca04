"""The page's address: what a link may say, and what is said of one that is wrong."""

import json
import shutil
import subprocess

import pytest

from results import ROOT

READ = "import {{ read, write, START }} from '{file}'; console.log(JSON.stringify([read({address}), START]))"


@pytest.fixture
def read(tmp_path):
    """What the page makes of an address: the state, the complaint, and the state without an address."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    module = tmp_path / "state.mjs"
    module.write_text((ROOT / "reproduce" / "annex" / "page" / "page" / "state.js").read_text())

    def run(address):
        code = READ.format(file=module.as_uri(), address=json.dumps(address))
        command = ["node", "--input-type=module", "-e", code]
        (state, complaint), start = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return state, complaint, start

    return run


def test_a_link_without_a_mistake(read):
    state, complaint, start = read('#view=whatif&cluster=h100&changes={"hca_bandwidth":13e9}')
    assert state == start | {"view": "whatif", "cluster": "h100", "changes": {"hca_bandwidth": 13e9}}
    assert complaint == ""


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("#artefact=fig_bubble", "artefact is unknown, needs one of view, artifact, cluster"),
        ("#constructor=1", "constructor is unknown"),
        ("#view=nope", "view=nope is unknown, needs one of home, figure, whatif, timeline, lessons, paper"),
        ("#configuration={broken", "configuration={broken is not JSON"),
        ("#changes=null", "changes=null is not JSON"),
    ],
)
def test_what_is_wrong_is_said_and_left_out_alone(read, address, complaint):
    state, said, start = read(f"{address}&cluster=h100")
    assert said.startswith(f"left out of the address: {complaint}")
    assert state == start | {"cluster": "h100", "view": "figure"}


def test_an_address_of_before_that_names_no_view_is_of_a_figure_and_an_empty_one_of_home(read):
    assert read("#artifact=fig_bubble")[0]["view"] == "figure"
    assert read("")[0]["view"] == read("#")[0]["view"] == "home"
    assert read("#view=lessons&lesson=tensor&step=2")[0]["lesson"] == "tensor"
