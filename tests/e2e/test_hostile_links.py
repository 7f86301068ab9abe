"""Links and open folders where root writes results, and who may read them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed
from rig.agent import configuration
from rig.hostile import NOBODY, own_folder
from rig.recorder import Recorder
from rig.timeline import Timeline

Record = Callable[..., Recorder]


@pytest.fixture
def victim(folder: Path) -> Path:
    """A file of root's."""
    if os.geteuid():
        pytest.skip("only root can be attacked so")
    file = folder / "victim"
    file.write_text("precious")
    return file


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", ["ledger.json.tmp", "ledger.json", "host=x"])
def test_a_ledger_is_not_written_into_anothers_folder(
    recordable: None, folder: Path, victim: Path, name: str
) -> None:
    foreign = own_folder(folder)
    (foreign / name).symlink_to(victim)
    for more in ([], ["--overwrite"]):
        done = run(
            *[installed.tailscope(), "record", "-o", foreign, *more, "--", "/bin/true"],
        )
        assert done.returncode != 0
        assert f"belongs to user {NOBODY}" in done.stderr, done
    assert victim.read_text() == "precious"
    assert sorted(foreign.iterdir()) == [foreign / name]


def test_windows_and_an_agents_ledgers_are_not_either(
    recordable: None, folder: Path, victim: Path
) -> None:
    foreign = own_folder(folder)
    for kind in ("asked", "end", "slow"):
        (foreign / f"{kind}-0001.timeline.tmp").symlink_to(victim)
    done = run(installed.tailscope(), "timeline", "-o", foreign, "--", "/bin/true")
    assert done.returncode != 0
    assert f"belongs to user {NOBODY}" in done.stderr, done
    config = configuration(folder, 'name = "none"')
    config.write_text(config.read_text().replace(str(folder / "ledgers"), str(foreign)))
    done = run(installed.tailscope(), "agent", config)
    assert done.returncode != 0
    assert f"belongs to user {NOBODY}" in done.stderr, done
    assert victim.read_text() == "precious"


def test_a_folder_that_everybody_may_write_to_is_refused(recordable: None, folder: Path) -> None:
    open_to_all = folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    done = run(installed.tailscope(), "record", "-o", open_to_all, "--", "/bin/true")
    assert done.returncode != 0
    assert "others may write to it" in done.stderr, done


def test_results_are_for_root_alone(
    record: Record, timeline: Callable[..., Timeline], folder: Path, victim: Path
) -> None:
    recorder = record("--span", "sdk", "--", installed.LAB / "loopbench", "--spans", 100)
    recorder.wait(60).clean()
    flight = timeline("-p", os.getpid())
    flight.ask()
    flight.stop(signal.SIGTERM).clean()
    places = [recorder.ledger, *recorder.ledger.rglob("*"), flight.folder, *flight.windows()]
    assert len(places) > 5
    for place in places:
        assert place.stat().st_mode & 0o077 == 0, place
