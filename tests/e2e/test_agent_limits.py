"""The agent where the machine gives it little: a disk that is full, few descriptors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig import ledger
from rig.agent import LOOPBENCH, Agent
from rig.processes import Started
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]


@pytest.fixture
def small(folder: Path) -> Iterator[Path]:
    """The agent's folder on a disk of two megabytes, most of it taken by the file `ballast`."""
    disk = folder / "ledgers"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "tailscope-test", disk]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs to mount a tmpfs: {done.stderr.strip()}")
    (disk / "ballast").write_bytes(bytes(7 << 18))
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_rows_that_find_the_disk_full_are_counted_and_room_is_used_again(
    small: Path, agent: Start, run: Run
) -> None:
    started = agent(LOOPBENCH, ledger='rotate_age = "1s"')
    bench = run("loopbench", "--seconds", 120, "--think-us", 20)
    unwritten = "tailscope_lost_total{place=unwritten}"
    until(lambda: started.figures()[unwritten] > 0, "rows find the disk full", 60)
    until(lambda: "can't start the next ledger" in started.err, "no next one can be begun", 60)
    assert all((one / "ledger.json").exists() for one in started.ledgers()), "a stump is left"
    bench.stop().clean()
    (small / "ballast").unlink()
    ledgers, written = len(started.ledgers()), "tailscope_written_bytes_total"
    before = started.figures()[written]
    run("loopbench", "--spans", 1000).wait().clean()
    until(lambda: len(started.ledgers()) > ledgers, "one is begun again", 60)
    figures = until(lambda: (f := started.figures())[written] > before and f, "it is written", 60)
    assert figures["tailscope_processes"] == 0
    assert figures["tailscope_write_errors_total"] > 0
    started.stop().clean()
    # None is missing that is not counted.
    kept = sum(ledger.count(one) for one in started.ledgers())
    assert kept + figures[unwritten] == figures["tailscope_rows_total"]


def test_it_takes_as_many_descriptors_as_it_may_have(agent: Start) -> None:
    started = agent(LOOPBENCH, under=("prlimit", "--nofile=256:4096"))
    limits = Path(f"/proc/{started.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == ["4096", "4096"], line
