"""The format of results (`records/`, `schema/`), and the committed ones (`reference/`). It knows nothing else of ours.

`ROOT` is the checkout, or the folder that the packages are installed in.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
