"""Files that pretend to be HotSpot's counters: `tailscope observe hsperf:PID:NAME`."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from rig.hostile import Attack
from rig.observer import Observe
from rig.processes import Ended


@pytest.fixture
def folder_name(folder: Path) -> str:
    return folder.name


@pytest.mark.parametrize("kind", ["fifo", "other's"])
def test_what_is_no_file_of_the_processs_user_is_refused_at_once(
    observe: Observe,
    attack: Attack,
    folder_name: str,
    kind: str,
) -> None:
    attacker = attack("pretends_hotspot", kind, folder_name)
    if kind == "other's":
        made = Path("/tmp") / f"hsperfdata_{folder_name}" / str(attacker.pid)
        os.chown(made, 0, 0)
    done: Ended = observe("--signal", f"hsperf:{attacker.pid}:sun.test.count", "--duration", "1s")
    assert done.code != 0
    assert "hsperfdata_USER" in done.err, done


def test_a_file_that_is_cut_short_ends_nobody(
    observe: Observe,
    attack: Attack,
    folder: Path,
    folder_name: str,
) -> None:
    attacker = attack("pretends_hotspot", "short", folder_name)
    timer = threading.Timer(2, (folder / "attacker" / "begin").touch)
    timer.start()
    signal = f"hsperf:{attacker.pid}:sun.test.count"
    done = observe("--signal", signal, "--duration", "8s")
    timer.join()
    assert done.code >= 0, done
    assert "truncated" in done.out + done.err, done
