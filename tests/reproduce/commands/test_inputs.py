"""What a user may type: names as the paper has them, and mistakes, each one line with its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reproduce.cli import command_of, main
from reproduce.experiment import catalog
from results import ROOT
from results.records import errors

GPT = {"layers": 24, "hidden": 2304, "heads": 24, "B": 1}
MEASURED = ("fig_interleaved", "--fidelity", "measured")


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (["Figure", "12"], "fig_interleaved"),
        (["Figure 12"], "fig_interleaved"),
        (["fig12"], "fig_interleaved"),
        (["Fig.", "12"], "fig_interleaved"),
        (["12"], "fig_interleaved"),
        (["Table1"], "table_weak_scaling"),
        (["table-2"], "table_zero3"),
        (["1"], "fig_model_trend"),  # there is a Table 1, too
        (["5.9"], "table_bandwidth"),
        (["section", "5.10"], "table_checkpoint"),
        (["fig_bubble"], "fig_bubble"),
        (["99"], "99"),
    ],
)
def test_an_artifact_by_its_label(words, id):
    assert catalog.named([*words, *words]) == [id]


def test_labels_beside_ids_on_a_command_line(capsys):
    assert catalog.named(["fig_bubble", "Figure", "3", "table_zero3", "7"]) == [
        "fig_bubble", "fig_gpipe_timeline", "table_zero3", "fig_microbatch_single_gpu",
    ]  # fmt: skip
    assert main(["describe", "Figure", "12"]) == 0
    assert capsys.readouterr().out.startswith("fig_interleaved: Figure 12")
    assert main(["fig12", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("fig_interleaved: would evaluate 10 points")


def test_a_number_of_a_cluster_that_is_not_plausible_is_a_line_before_the_results(tmp_path, points_file, capsys):
    cluster, points = tmp_path / "mine.toml", points_file(GPT)
    cluster.write_text('base = "h100"\nmemory_bytes = 1e9\n')
    assert main(["simulate", str(points), "--cluster", str(cluster), "--json"]) == 0
    captured = capsys.readouterr()
    (point,) = json.loads(captured.out)["points"]
    assert point["status"] == "oom"
    (line,) = captured.err.splitlines()
    assert line.startswith(f"reproduce: warning: cluster file {cluster}: memory_bytes=1e+09 lies outside its plausible")


def test_a_letter_that_the_figure_s_font_lacks_is_one_line(tmp_path, points_file, refused):
    points = points_file({**GPT, "label": "\N{ROCKET}"})
    line = refused("simulate", points, "--json", "--plot", tmp_path / "points.png", code=0)
    assert line.startswith("reproduce: warning: Glyph 128640")
    assert (tmp_path / "points.png").exists()


def test_a_script_for_slurm_without_gpus_or_absolute_paths(said):
    options = ["--scale", "gpus", "--launcher", "slurm", "--print-script", "--time", "30", "--partition", "gpu"]
    script = said(*MEASURED, *options)
    assert "#SBATCH --time=30\n#SBATCH --partition=gpu\n" in script
    assert script.endswith("exec python -m ptdp fig_interleaved --fidelity measured --scale gpus --launcher slurm\n")
    assert str(ROOT) not in script


def test_list_fits_80_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_quiet_is_a_line_for_each_artifact_and_no_progress(capsys, load_small, tmp_path):
    assert main(["fig_squares", "-q", "--results", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (line,) = captured.out.splitlines()
    assert line.split() == ["fig_squares", "5", "points", *line.split()[3:7], "1", "contradicted"]


def test_commands_of_two_words():
    assert command_of(["gate", "exact", "engine"]) == ("gate exact", ["engine"])
    assert command_of(["gate", "--base", "main"]) == ("gate", ["--base", "main"])
    assert command_of(["bench", "run"]) == ("bench", ["run"])
    assert command_of(["fig_bubble", "gate"]) == ("", ["fig_bubble", "gate"])


def test_half_of_a_backward_pass_is_for_the_weights_unless_told_otherwise(as_json):
    """So that no time of a backward pass is refused because of a default."""
    half, usual = (as_json("schedule", "--t-backward", "1", *words) for words in (["--t-weight", "1/2"], []))
    assert half["schedules"] == usual["schedules"]


@pytest.mark.parametrize("on_the_path", [True, False])
def test_what_to_type_next_can_be_typed(on_the_path, tmp_path):
    """After `make`, which puts `reproduce` into .venv/bin and not on the path."""
    script = Path(sys.executable).with_name("reproduce")
    folders = ["/usr/bin", "/bin", *([str(script.parent)] if on_the_path else [])]
    environment = {**os.environ, "PATH": os.pathsep.join(folders)}

    def run(command):
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == errors.DONE, done.stderr
        return done.stdout

    started = "reproduce" if on_the_path else os.path.relpath(script, ROOT)
    first = run(f"{started} fig_interleaved_timeline --results {tmp_path}")
    (following,) = [line.removeprefix("next: ") for line in first.splitlines() if line.startswith("next: ")]
    assert following.startswith(f"{started} ")
    run(f"{following} --dry-run")
    (record,) = tmp_path.glob("*/derived/record.json")
    assert json.loads(record.read_text())["provenance"]["command"][0] == "reproduce"
