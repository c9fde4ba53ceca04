"""From a text to a model that has learned it: `reproduce data`, training, `reproduce generate`."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from reproduce.cli import main
from reproduce.commands import data, generate
from reproduce.tools import generation
from results.records.errors import UsageError

SMALL = ["hidden=32", "heads=4", "seq=16", "layers=2", "b=4", "B=8", "steps=60", "lr=0.01", "log_every=60"]


def parsed(saved: Path, **options: object) -> Namespace:
    values = {
        "checkpoint": str(saved),
        "prompt": "ab",
        "tokens": 40,
        "temperature": 0.0,
        "seed": 1,
        "device": "cpu",
    } | {"json": False}
    return Namespace(**values | options)


def test_a_model_goes_on_with_what_it_has_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained as two stages; generated beyond the sequence length, where the model sees the last 16 bytes."""
    (tmp_path / "text").write_text("abcde" * 2000)
    asked = Namespace(sources=[tmp_path / "text"], out=tmp_path / "corpus", vocab=256, program="reproduce", json=False)
    assert data.run(asked) == 0
    assert "10,001 tokens in 1 documents, vocabulary 256" in capsys.readouterr().out
    sets = [*SMALL, "p=2", f"save={tmp_path / 'saved'}"]
    words = [word for text in sets for word in ("--set", text)]
    assert (
        main(["train", "--recipe", "tiny", "--ranks", "2", "--data", str(tmp_path / "corpus"), *words, "--json"]) == 0
    )
    trained = json.loads(capsys.readouterr().out)
    assert (trained["schema"], trained["step"], trained["terminated"]) == ("ptdp-train/1", 60, False)
    assert len(trained["losses"]) == 60
    assert trained["losses"][-1] < 0.5 < trained["losses"][0]
    assert trained["saved"] == str(tmp_path / "saved" / "step_00000060")
    assert generate.run(parsed(tmp_path / "saved")) == 0
    text = "ab" + "cdeab" * 8
    assert capsys.readouterr().out == f"{text}\n"
    assert generate.run(parsed(tmp_path / "saved", json=True)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"schema": "ptdp-generate/1", "prompt": "ab", "text": text, "ids": [*text.encode()], "seed": 1}
    trainer = generation.load(tmp_path / "saved", torch.device("cpu"))
    draws = [
        list(generation.sample(trainer, [97, 98], 20, temperature=3.0, seed=seed, tokens=256)) for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    for options, message in (
        ({"prompt": ""}, r"prompt=\[\] cannot be; needs tokens from 0 to 255"),
        ({"temperature": -1.0}, "temperature=-1.0, tokens=40, seed=1 is out of range; needs temperature >= 0"),
        ({"checkpoint": str(tmp_path / "text")}, "holds no whole checkpoint"),
    ):
        with pytest.raises(UsageError, match=message):
            generate.run(parsed(tmp_path / "saved", **options))
