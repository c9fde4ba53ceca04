"""What makes the page's folder a static Space of Hugging Face: its README, and which files are kept outside of git."""

from pathlib import Path

from results.records.storage import atomic_write_bytes

README = """---
title: PTD-P simulated
emoji: 📈
colorFrom: indigo
colorTo: green
sdk: static
app_file: index.html
license: apache-2.0
short_description: Figures of Megatron-LM's PTD-P, live in your browser
---

The figures and tables of *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM* (SC'21),
simulated in your browser beside the published values; what-if questions, timelines of schedules, and six lessons.

Made by `reproduce explore --space` of ptdp. `hf upload NAME/SPACE FOLDER . --repo-type space` publishes it.
"""
BINARY = (".bin", ".wasm", ".zip")  # the hub takes no such files in git itself


def write_space(folder: Path) -> None:
    """Put beside the page what a static Space needs."""
    atomic_write_bytes(folder / "README.md", README.encode())
    lines = (f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in BINARY)
    atomic_write_bytes(folder / ".gitattributes", "".join(lines).encode())
