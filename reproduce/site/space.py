"""What makes the page's folder a static Space of Hugging Face: the README that configures it, and which files are large."""

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

The figures and tables of *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM* (SC'21) beside
the published values, simulated in your browser; what-if questions, timelines of pipeline schedules, and six lessons.

Made by `reproduce site --space` of ptdp. `hf upload NAME/SPACE FOLDER . --repo-type space` publishes it.
"""
LARGE = (".bin", ".wasm", ".zip")  # kept outside of git: the hub takes no binary files in it


def write_space(folder: Path) -> None:
    """Put beside the page what a static Space needs."""
    atomic_write_bytes(folder / "README.md", README.encode())
    lines = (f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LARGE)
    atomic_write_bytes(folder / ".gitattributes", "".join(lines).encode())
