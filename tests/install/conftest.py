"""What these tests share: ledgers of `bench`'s generator."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
