"""`tailscope observe` on variables of programs that know nothing of it."""

from __future__ import annotations

import os
import secrets
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from rig import installed
from rig.observer import CPUS, NEEDS_TWO_CPUS, STEP, Observe, has_channels, report
from rig.processes import Started, favoured
from rig.waiting import until

pytestmark = NEEDS_TWO_CPUS


@pytest.mark.parametrize("symbol", ["paced_rounds", "paced_small", "paced_rounds+0"])
def test_a_variable_of_an_unmodified_program_is_read(
    observe: Observe, paced: Callable, symbol: str
) -> None:
    pid = paced("--cycles", STEP).pid
    options = ("--period", 50 * STEP, "--duration", "500ms", "--json", "--dte", "5%")
    told = report(observe("--signal", f"mem:{pid}:{symbol}", *options))
    assert "process_vm_readv" in told["rates"][0]["how"]
    assert 0 < told["rates"][0]["all_per_second"] / told["clock_hz"] <= 1.01 / STEP


def test_a_stripped_programs_variable_is_found_by_its_build_id(
    observe: Observe, folder: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may install debug symbols")
    build_id = secrets.token_bytes(20)
    note = folder / "build-id"
    note.write_bytes(struct.pack("=III4s", 4, len(build_id), 3, b"GNU") + build_id)
    program, whole = folder / "paced", installed.LAB / "paced"
    renamed = ["objcopy", "--update-section", f".note.gnu.build-id={note}", whole, program]
    subprocess.run([str(word) for word in renamed], check=True, timeout=60)
    name = build_id.hex()
    debug = Path("/usr/lib/debug/.build-id") / name[:2] / f"{name[2:]}.debug"
    made = [one for one in list(debug.parents)[:3] if not one.exists()]
    debug.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True, timeout=60)
        subprocess.run(["strip", program], check=True, timeout=60)
        command = [*favoured(), program, "--seconds", 600, "--cpu", CPUS[0]]
        with Started(command) as running:
            until(lambda: has_channels(running.pid), "it counts")
            signal_ = f"mem:{running.pid}:paced_rounds"
            options = ("--period", 100_000, "--duration", "200ms", "--json")
            found = report(observe("--signal", signal_, *options))
            debug.unlink()
            missing = observe("--signal", signal_, *options)
    finally:
        debug.unlink(missing_ok=True)
        for one in made:
            with suppress(OSError):  # somebody else has put something there meanwhile
                one.rmdir()
    assert found["rates"][0]["per_second"] > 0
    assert missing.code == 2 and "paced_rounds" in missing.err, missing
