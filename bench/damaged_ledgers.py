"""Changes bytes of a ledger, seed by seed, and looks whether a wrong answer goes unannounced.

A seed changes 1 to 20 bytes of one file (a Parquet file or ledger.json): anywhere, near its end
(where a footer lies), or side by side. What counts as right: the command refuses, or it says in its
first line what is missing, or it answers as it does for the intact ledger.

    python bench/damaged_ledgers.py LEDGER --seeds 1000
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from tailscope.errors import LedgerError
from tailscope.ledger.ledger import Ledger, open_ledger
from tailscope.statistics.explanation import explain
from tailscope.statistics.target import Target

#: Bytes at a file's end that a third of the seeds keep to.
NEAR_END = 3_000


def damage(ledger: Path, seed: int) -> Path:
    """Change bytes of one of a ledger's files; returns the file."""
    rng = np.random.default_rng([1, seed])
    files = sorted(file for file in ledger.rglob("*") if file.is_file())
    file = files[rng.integers(len(files))]
    held = np.frombuffer(file.read_bytes(), dtype=np.uint8).copy()
    count = min(int(rng.integers(1, 21)), len(held))
    match int(rng.integers(3)):
        case 0:
            places = rng.choice(len(held), count, replace=False)
        case 1:
            near = min(NEAR_END, len(held))
            places = len(held) - 1 - rng.choice(near, min(count, near), replace=False)
        case _:
            begin = int(rng.integers(len(held) - count + 1))
            places = np.arange(begin, begin + count)
    # Never by nothing.
    held[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
    file.write_bytes(held.tobytes())
    return file


def answer(ledger: Ledger) -> str:
    """Everything that `explain` says, but for where the ledger lies."""
    found = explain(ledger, Target(99), None, 1).to_dict()
    for recording in found["recordings"]:
        del recording["path"]
    return json.dumps(found)


def trial(intact: Path, expected: str, seed: int, scratch: Path) -> tuple[str, Path]:
    """What becomes of a seed: `refused`, `announced`, `same` or `WRONG`; and the ledger."""
    ledger = scratch / "ledger"
    shutil.rmtree(ledger, ignore_errors=True)
    shutil.copytree(intact, ledger)
    damage(ledger, seed)
    try:
        opened = open_ledger([ledger])
        if opened.notices:
            return "announced", ledger
        return ("same" if answer(opened) == expected else "WRONG"), ledger
    except LedgerError:
        return "refused", ledger


def main() -> int:
    """Run the seeds on one ledger; exit code 1 if an answer was wrong without a notice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--seeds", type=int, default=1_000)
    chosen = parser.parse_args()
    whole = open_ledger([chosen.ledger])
    assert not whole.notices, f"{chosen.ledger} is not intact: {whole.notices}"
    expected = answer(whole)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(chosen.seeds):
            outcome, _ = trial(chosen.ledger, expected, seed, Path(scratch))
            outcomes[outcome] += 1
            if outcome == "WRONG":
                print(f"seed {seed}: a wrong answer and no notice")
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    return 1 if outcomes["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
