"""What tests share: a browser; ledgers made by hand, and larger ones of `bench`'s generator."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from browser import Browser, chromium

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from explain_synthetic import (
    CHECKSUM,
    ROOM,
    START_NS,
    World,
    describe,
    generate,
    seal,
    sealed_json,
    write,
)

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed (scripts/setup --for-tests)")
    with chromium() as opened:
        yield opened


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a terminal of 80 columns that has Unicode, wherever the tests run."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a ledger from columns; what isn't given is plain: weight 1, a span each millisecond."""

    def ledger(
        name: str = "ledger",
        about: dict[str, Any] | None = None,
        number: int = 0,
        world: World | None = None,
        **columns: list | np.ndarray,
    ) -> Path:
        rows = len(columns["wall_ns"])
        world = world or World(rows, seconds=rows / 1000)
        filled = {
            "start_ns": START_NS + np.arange(rows, dtype=np.int64) * 1_000_000,
            "weight": np.ones(rows),
        }
        for column, values in columns.items():
            kind = float if column == "weight" else np.int64
            filled[column] = np.asarray(values, dtype=kind)
        folder = tmp_path / name
        write(folder, filled, world, number)
        said = describe(world, rows, number + 1) | (about or {})
        (folder / "ledger.json").write_text(sealed_json(said))
        return folder

    return ledger


def rewrite(ledger: Path, select: str) -> Path:
    """Put `SELECT …` over each file of a ledger in place of its rows; `row` counts them from 0."""
    for file in sorted(ledger.rglob("*.parquet")):
        rows = f"(SELECT *, row_number() OVER (ORDER BY start_ns) - 1 AS row FROM '{file}')"
        text = select.format(rows=rows)
        room = f"KV_METADATA {{'{CHECKSUM}': '{ROOM}'}}"
        duckdb.execute(f"COPY ({text}) TO '{file}.new' (FORMAT parquet, {room})")
        seal(Path(f"{file}.new")).replace(file)
    return ledger


def copied(ledger: Path, to: Path) -> Path:
    """A copy of a ledger."""
    shutil.copytree(ledger, to)
    return to


def edit(ledger: Path, **about: object) -> Path:
    """Change what a ledger.json says, with a checksum that is right."""
    place = ledger / "ledger.json"
    place.write_text(sealed_json(json.loads(place.read_text()) | about))
    return ledger


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """A generated ledger with a planted run-queue wait, of which one span in ten was kept."""
    world = World(150_000, seconds=300.0, keep=0.1, seed=3)
    return generate(tmp_path_factory.mktemp("planted") / "ledger", world), world


@pytest.fixture
def two_values(make: Make) -> Path:
    """980 spans of 100 µs, then 20 of 1 ms with 900 µs of lock, evenly among them."""
    slow = np.arange(1000) % 50 == 49
    return make(
        wall_ns=np.where(slow, 1_000_000, 100_000),
        lock_ns=np.where(slow, 900_000, 0),
        lock_n=np.where(slow, 2, 0),
    )
