"""`tailscope observe` on variables of programs that know nothing of it, and on their pages."""

from __future__ import annotations

import json
import os
import secrets
import signal
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
    assert 0 < told["rates"][0]["all_per_second"] / told["clock_hz"] <= 1.01 / STEP


def mapped(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def pages(maps: list[str]) -> set[tuple[int, str]]:
    """Each page that is mapped, and in which mode."""
    ranges = (line.split()[:2] for line in maps)
    return {
        (page, mode)
        for start, end, mode in ((*span.split("-"), mode) for span, mode in ranges)
        for page in range(int(start, 16), int(end, 16), 4096)
    }


def has_moved(pid: int) -> bool:
    """Whether a page is where its file's name says; before that the file is mapped elsewhere."""
    named = (line.partition("tailscope-moved:") for line in mapped(pid))
    return any(name and line.startswith(name.split(":")[0] + "-") for line, _, name in named)


def test_a_page_is_moved_to_be_read_and_is_back_afterwards(
    observe: Observe, paced: Callable
) -> None:
    pid = paced("--cycles", STEP).pid
    before = mapped(pid)
    options = ("--period", 10 * STEP, "--duration", "500ms", "--json")
    signals = (f"mem:{pid}:paced_rounds:moved", f"mem:{pid}:paced_small:moved")
    for _ in range(20):
        told = report(observe("--signal", signals[0], "--signal", signals[1], *options))
        # With much else to do a machine does not let it stop in time, and nothing is moved.
        if not any("for too long" in rate["how"] for rate in told["rates"]):
            break
    for rate in told["rates"]:
        assert "which was moved" in rate["how"]
        assert 0 < rate["all_per_second"] / told["clock_hz"] <= 1.01 / STEP
    # Both lie in one page, or in two: each page goes and comes once.
    assert 1 <= len(told["moves"]) <= 2
    assert all(m["there_us"] > 0 and m["back_us"] > 0 for m in told["moves"])
    # One thread alone, all of them, and all of them once more; any other was in vain.
    assert all(m["stops"] >= 3 for m in told["moves"])
    assert all(m["longest_us"] >= max(m["there_us"], m["back_us"]) for m in told["moves"])
    assert mapped(pid) == before


def test_a_program_that_forks_while_its_page_is_moved_ends_the_observation(
    program: Callable[..., Path],
) -> None:
    with subprocess.Popen(
        [program("shared_page.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as forking:
        assert forking.stdin and forking.stdout
        forking.stdout.readline()
        before = mapped(forking.pid)
        name = f"mem:{forking.pid}:shared_page"
        command = [installed.tailscope(), "observe", "--json", "--quiet", "--no-pauses"]
        with subprocess.Popen(
            [*command, "--signal", f"{name}:moved", "--period", "50000", "--dte", "5%"],
            stdout=subprocess.PIPE,
            text=True,
        ) as observer:
            until(lambda: has_moved(forking.pid), "the page is moved")
            forking.stdin.write(b"f")
            forking.stdin.flush()
            child = int(forking.stdout.readline())
            told = json.loads(observer.communicate(timeout=30)[0])
        assert f"process {forking.pid} made a child" in told["end"]
        assert any(f"made a child meanwhile ({child})" in notice for notice in told["notices"])
        assert mapped(forking.pid) == before
        # The child has it as a range of its own: the kernel joins none that a fork has copied.
        assert pages(mapped(child)) == pages(before)
        # Each writes into a page of its own, and finds there what it wrote.
        forking.stdin.close()
        assert forking.stdout.read().split() == [b"child:", b"own", b"parent:", b"own"]


def test_a_page_that_may_not_be_moved_is_read_by_a_system_call(
    observe: Observe, paced: Callable
) -> None:
    pid = paced("--cycles", STEP).pid
    before = mapped(pid)
    options = ("--period", 50 * STEP, "--duration", "300ms", "--json", "--dte", "5%")
    os.kill(pid, signal.SIGSTOP)
    stopped = f"/proc/{pid}/status"
    until(lambda: "T (stopped)" in Path(stopped).read_text(), "paced is stopped")
    ended = observe("--signal", f"mem:{pid}:paced_rounds:moved", *options, "--no-pauses")
    os.kill(pid, signal.SIGCONT)
    told = json.loads(ended.out)
    assert "process_vm_readv" in told["rates"][0]["how"]
    assert "its page was not moved: it is stopped" in told["rates"][0]["how"]
    assert told["moves"] == [] and mapped(pid) == before


def test_a_page_that_a_killed_observer_left_is_put_back_by_the_next(
    observe: Observe, paced: Callable
) -> None:
    pid = paced("--cycles", STEP).pid
    before = mapped(pid)
    name = f"mem:{pid}:paced_rounds"
    command = [installed.tailscope(), "observe", "--quiet", "--signal", f"{name}:moved"]
    with Started(command) as killed:
        until(lambda: has_moved(pid), "the page is moved")
        options = ("--period", 50 * STEP, "--duration", "300ms", "--json", "--dte", "5%")
        beside = report(observe("--signal", name, *options))
        assert "another observation has moved it" in beside["rates"][0]["how"]
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(10)
    told = report(observe("--signal", name, *options))
    assert "found moved" in told["rates"][0]["how"]
    assert 0 < told["rates"][0]["all_per_second"] / told["clock_hz"] <= 1.01 / STEP
    assert told["moves"][0]["there_us"] is None and told["moves"][0]["back_us"] > 0
    assert mapped(pid) == before


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
