"""Timelines on the terminal, and `reproduce schedule NAME`, which draws one."""

import json
from fractions import Fraction

import pytest

from ptdp_core.schedules import Schedule, build
from reproduce.annex.schedules.ascii import MAX_LINES, ascii_timeline
from reproduce.cli import main
from reproduce.output import timeline_files
from reproduce.output.timeline import from_schedule


def timeline_of(name, p, m, v, factor=2):
    return from_schedule(build(name, p, m, v), factor)


class TestTerminal:
    def test_letters_where_they_fit(self):
        lines, notes = ascii_timeline(timeline_of("gpipe", 2, 3, 1))
        assert lines == ["Device 1 F1F2F3......B1--B2--B3--", "Device 2 ..F1F2F3B1--B2--B3--...."]
        assert notes == ["F: forward pass of a microbatch, B: backward pass; dots are idle"]

    def test_small_letters_are_later_chunks(self):
        lines, notes = ascii_timeline(timeline_of("interleaved", 2, 2, 2))
        assert lines[0] == "Device 1 F1F2f1f2......b1--b2--B1--B2--"
        assert "f, b: later chunks" in notes[0]

    def test_digits_where_letters_do_not_fit(self):
        lines, notes = ascii_timeline(timeline_of("interleaved", 4, 8, 2))
        assert lines[3] == "Device 4 ...123411-22-33-44-51-62-73-84-55-66-77-88-5-6-7-8-......"
        assert "dashes" in notes[0]

    @pytest.mark.parametrize("which", [("1f1b", 4, 100, 1, 2), ("gpipe", 40, 40, 1, 1), ("1f1b", 2, 9, 1, 1000)])
    def test_cut_at_80_columns_with_a_note(self, which):
        timeline = timeline_of(*which)
        lines, notes = ascii_timeline(timeline)
        assert all(len(line) == 80 for line in lines)
        assert all(line.endswith(">") for line in lines)
        assert any("cut at 80 columns" in note for note in notes)
        assert len(lines) == min(timeline.p, MAX_LINES)
        assert any("of 40 devices" in note for note in notes) == (timeline.p == 40)

    def test_split_passes_have_letters_of_their_own(self):
        lines, notes = ascii_timeline(timeline_of("zb-h1", 2, 3, 1))
        assert lines == ["Device 1 F1F2..I1W1F3I2W2I3W3", "Device 2 ..F1I1F2I2W1F3I3W2W3"]
        assert notes == ["F: forward pass of a microbatch, I: input gradient, W: weight gradient; dots are idle"]

    @pytest.mark.parametrize("factor", [Fraction(1, 3), 1, Fraction(137, 100), 2])
    def test_every_pass_is_there_once(self, factor):
        lines, _ = ascii_timeline(timeline_of("1f1b", 2, 4, 1, factor), columns=1000)
        for line in lines:
            assert all(line.count(f"{kind}{i}") == 1 for kind in "FB" for i in range(1, 5))
        assert len({len(line) for line in lines}) == 1


class TestCommand:
    def run(self, capsys, *arguments):
        code = main(["schedule", *arguments])
        return code, *capsys.readouterr()

    def test_prints_and_writes(self, capsys, tmp_path):
        code, out, err = self.run(capsys, "interleaved", "-p", "4", "-m", "8", "-v", "2", "--results", str(tmp_path))
        assert (code, err) == (0, "")
        assert "bubble (p-1)/(vm) = 3/16 = 18.75 %" in out
        assert "Device 4 " in out
        assert "time: 28.5 t_f (derived: executed schedule, t_b = 2 t_f)" in out
        assert "peak stash: 5.5 microbatches" in out
        assert "messages: 112, 96 of them between neighbours" in out
        assert all(len(line) <= 100 for line in out.splitlines()[:-1])
        folder = tmp_path / "schedule" / "interleaved-p4-m8-v2"
        names = {"figure.pdf", "figure.png", "trace.json", "schedule.csv"}
        assert {path.name for path in folder.iterdir()} == names
        assert all(name in out.splitlines()[-1] for name in names)
        assert str(folder) in out
        schedule = Schedule.from_csv((folder / "schedule.csv").read_text(), "interleaved")
        assert schedule == build("interleaved", 4, 8, 2)
        assert json.loads((folder / "trace.json").read_text())["traceEvents"]

    def test_json(self, capsys, tmp_path):
        code, out, err = self.run(
            capsys, "gpipe", "--t-forward", "2", "--t-backward", "3", "--json", "--results", str(tmp_path)
        )
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert document["parameters"] == {"p": 4, "m": 8, "t_f": 2.0, "t_b": 3.0, "t_w": 1.5}
        assert [(row["schedule"], row["v"]) for row in document["schedules"]] == [("gpipe", 1)]
        assert document["metrics"]["bubble_fraction"] == {"value": 0.375, "unit": "1", "origin": "derived"}
        assert document["metrics"]["makespan"]["value"] == 27.5
        assert all((tmp_path / "schedule" / "gpipe-p4-m8-v1" / name).is_file() for name in document["files"])

    def test_split_backward_passes(self, capsys, tmp_path):
        code, out, err = self.run(capsys, "zb-h1", "--t-backward", "3", "--t-weight", "1", "--results", str(tmp_path))
        assert (code, err) == (0, "")
        # (p-1)(t_f + t_i - t_w) = 6 of m(t_f + t_b) = 32
        assert "ZB-H1, p = 4, m = 8: bubble 3/16 = 18.75 %\n" in out
        assert "time: 38 t_f (derived: executed schedule, t_b = 3 t_f, of it t_w = t_f)" in out
        assert "peak stash: 4 microbatches" in out
        table = (tmp_path / "schedule" / "zb-h1-p4-m8-v1" / "schedule.csv").read_text()
        assert Schedule.from_csv(table, "zb-h1") == build("zb-h1", 4, 8)

    def test_too_many_boxes_for_a_figure(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(timeline_files, "MAX_BOXES", 63)
        code, out, _ = self.run(capsys, "1f1b", "--results", str(tmp_path))
        assert code == 0
        assert "no figure: 64 boxes, more than 63; open trace.json in https://ui.perfetto.dev" in out
        folder = tmp_path / "schedule" / "1f1b-p4-m8-v1"
        assert {path.name for path in folder.iterdir()} == {"trace.json", "schedule.csv"}

    def test_results_folder_that_cannot_be_written(self, capsys, tmp_path):
        (tmp_path / "file").write_text("")
        code, out, err = self.run(capsys, "1f1b", "--results", str(tmp_path / "file"))
        assert code == 3
        assert "Device 1" in out
        assert "cannot write" in err
