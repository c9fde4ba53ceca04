"""The workflows: what their scripts make of each exit code, and the settings that a fork relies on."""

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GATE = (ROOT / ".github" / "workflows" / "gate.yml").read_text()


def script(workflow, step):
    """The script of a named step."""
    match = re.search(rf"- name: {re.escape(step)}\n(?:.*\n)*?( +)run: \|\n((?:\1  .*\n|\n)+)", workflow)
    assert match, step
    return textwrap.dedent(match[2])


def run(step, command, code, folder):
    """Run a step of the gate as GitHub does, with a stand-in for `command` that ends with `code`."""
    tool = folder / command
    tool.write_text(f'#!/bin/sh\necho "said by $*"\nexit {code}\n')
    tool.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "BASE": "abc", "RESULT": ".", "RUNNER_TEMP": str(folder)}
    done = subprocess.run(
        ["bash", "-e", "-c", script(GATE, step)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = folder / "summary.md"
    return done.returncode, done.stdout, summary.read_text() if summary.exists() else ""


@pytest.mark.parametrize(
    ("code", "ends"),
    [(0, 0), (1, 1), (3, 3), (6, 6), (7, 0), (9, 9), (130, 130)],
    ids=["ok", "internal", "unavailable", "regressed", "inconclusive", "nothing measured", "interrupted"],
)
def test_only_ok_and_inconclusive_timing_pass(code, ends, tmp_path):
    exit_code, out, summary = run("Paired timing against the base", "reproduce", code, tmp_path)
    assert exit_code == ends
    assert ("::warning" in out) == (code == 7)
    assert "said by gate --base abc --summary ./summary.md --results ." in out
    assert summary == "## Paired timing\n"  # the rest is the command's


@pytest.mark.parametrize("code", [0, 1, 3, 6, 8])
def test_every_other_end_of_the_exact_checks_fails(code, tmp_path):
    exit_code, _, summary = run("Exact checks", "reproduce", code, tmp_path)
    assert exit_code == code
    assert "said by gate exact" in summary


@pytest.mark.parametrize("changed", ["", "results/reference/exact/counts.json"])
def test_a_change_of_the_reference_itself_is_said(changed, tmp_path):
    (tmp_path / "git").write_text(f'#!/bin/sh\necho "{changed}"\n')
    (tmp_path / "git").chmod(0o755)
    ends, out, summary = run("Changed references", "reproduce", 0, tmp_path)
    assert ends == 0
    assert ("::warning" in out) == bool(changed)
    assert ("## The reference itself changed" in summary) == bool(changed)
    assert changed in summary


def test_what_may_write_on_a_pull_request_runs_nothing_of_it():
    """It is started by the gate's run, whose artifact holds what a stranger's code wrote."""
    text = (ROOT / ".github" / "workflows" / "gate-comment.yml").read_text()
    assert "actions/checkout" not in text
    assert not re.search(r"^ +(- )?run: ", text, re.MULTILINE)
    assert "${{" not in text.partition("script: |")[2]
    assert "pull-requests: write" in text
    assert all("pull-requests: write" not in path.read_text() for path in WORKFLOWS if path.stem != "gate-comment")


def test_exact_checks_come_before_timing():
    assert GATE.index("Exact checks\n") < GATE.index("Paired timing against the base\n")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_ready_for_forks(path):
    text = path.read_text()
    assert "permissions:\n  contents: read\n" in text
    assert "secrets." not in text
    assert "pull_request_target" not in text
    assert "cancel-in-progress" in text
    used = re.findall(r"uses: (.+)", text)
    assert used
    # A tag can be moved to other code; a commit cannot. Dependabot brings newer ones. "$/" is the action of this
    # repository, at the commit of the workflow.
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\$/", action) for action in used)
    assert text.count("persist-credentials: false") == text.count("uses: actions/checkout")
    assert text.count("timeout-minutes") == text.count("runs-on:")
    # What a stranger's branch is called goes through the environment and never into a script.
    assert not re.search(r"run: .*\$\{\{", text)
    assert all("${{" not in block for block in re.findall(r"run: \|\n((?: {10}.*\n|\n)+)", text))


def test_the_gate_compares_with_the_merge_base():
    assert "fetch-depth: 0" in GATE
    assert 'git merge-base "$TARGET" HEAD' in GATE
    assert "merge_group:" in GATE


def test_the_tests_run_on_every_supported_python():
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    matrix = re.search(r"python: \[(.*)\]", text)
    assert matrix
    least = PROJECT["requires-python"].removeprefix(">=")
    versions = matrix[1].replace('"', "").split(", ")
    assert versions[0] == least
    assert versions == ["3.11", "3.12", "3.13"]
    assert "run: bash .ci/run" in text


def test_the_lowest_versions_are_tried_on_the_lowest_python():
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    job = re.search(r"\n  lowest:\n((?:    .*\n|\n)+)", text)
    assert job
    assert 'python-version: "3.11"' in job[1]
    assert "--resolution lowest-direct" in job[1]
    unbounded = [
        requirement
        for extra in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for requirement in extra
        if not re.search(r">=\d", requirement) and not requirement.startswith("ptdp[")
    ]
    assert unbounded == []  # without a bound the lowest version is the first that there ever was


def test_a_night_tries_other_files_and_audits_what_an_installation_brings():
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    assert "PTDP_FUZZ_SEED: ${{ github.run_number }}" in text
    assert "run: pip-audit --strict ." in text


@pytest.mark.parametrize(("tag", "ends"), [("v{}", 0), ("v{}.1", 1), ("main", 1)])
def test_a_release_is_of_its_tag_s_version_and_has_a_bill_of_materials(tag, ends):
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "cyclonedx-py environment" in script(release, "Software bill of materials")
    command = ["bash", "-e", "-c", script(release, "The tag is the version")]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_REF_NAME": tag.format(PROJECT["version"]),
    }
    assert subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == ends


def test_a_release_tags_its_commit_as_its_version_once_all_is_built(tmp_path):
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    built = script(release, "Documentation and page")
    assert all(part in built for part in ("make docs", "--space", "dist/documentation.tar.gz", "dist/space.tar.gz"))
    job = release.partition("\n  tag:\n")[2]
    assert "needs: build\n" in job
    assert release.count("contents: write") == job.count("contents: write") == 1
    (tmp_path / "gh").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "gh").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "some/one",
        "GITHUB_SHA": "0a" * 20,
    }
    command = ["bash", "-e", "-c", script(release, "Tag the version")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    expected = f"api repos/some/one/git/refs -f ref=refs/tags/v{PROJECT['version']} -f sha={'0a' * 20}\n"
    assert done.stdout == expected


def test_every_place_that_names_the_version_names_this_one():
    version = PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    (released,) = re.findall(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.MULTILINE)
    newest, *_ = re.findall(r"^## (\S+ \([\d-]+\))$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == f"{version} ({released})"
    assert f"\nversion: {version}\n" in citation
    assert (archive["version"], archive["publication_date"]) == (version, released)
    assert archive["license"] == PROJECT["license"]
    assert archive["keywords"] == PROJECT["keywords"]
    for page in ("README.md", "docs/start.md"):
        assert re.findall(r"ptdp-([\d.]+)-\*", (ROOT / page).read_text()) == [version], page


def test_the_lowest_and_the_newest_torch_are_those_that_the_project_admits():
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    least, above = re.search(r'"torch>=2\.(\d+),<2\.(\d+)"', (ROOT / "pyproject.toml").read_text()).groups()
    assert f'torch: ["torch==2.{least}.*", "torch==2.{int(above) - 1}.*"]' in text
