"""The proof: planted faults × real servers, and whether Tailscope names and prices each of them."""

import sys
from pathlib import Path

# Results are stored and shown by the code of all measurements, bench/harness.py and render.py.
sys.path.append(str(Path(__file__).parents[2] / "bench"))
