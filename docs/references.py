"""Makes the committed results small, after `reproduce all --results results/reference`: `make references` runs both.

Records and what the pages of the repository show stay, pictures with a palette of 256 colours; figures and tables that
`reproduce plot` and the site make again from the records go.
"""

import io
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
MADE_AGAIN = {".csv", ".tex", ".md", ".pdf", ".png"}
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "docs" / "generate.py"]


def main() -> None:
    """Remove and shrink; print the size of what is left."""
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for path in filter(Path.is_file, REFERENCE.rglob("*")):
        shown = path.relative_to(REFERENCE).as_posix() in texts
        if path.name == "trace.json" or (path.suffix in MADE_AGAIN and not shown and "gate_trials" not in path.parts):
            path.unlink()
        elif path.suffix == ".png":
            path.write_bytes(shrunk(path.read_bytes()))
    print(f"{sum(path.stat().st_size for path in REFERENCE.rglob('*') if path.is_file()) / 1e6:.1f} MB")


def shrunk(picture: bytes) -> bytes:
    """A PNG with a palette; one that has a palette is as it was."""
    image = Image.open(io.BytesIO(picture))
    if image.mode == "P":
        return picture
    small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
