"""This machine: where the built things are, which CPU is for what, processes that always end."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from proof.ports import answers

ROOT = Path(__file__).resolve().parents[2]
TAILSCOPE = ROOT / ".venv" / "bin" / "tailscope"
LAB = ROOT / "target" / "release" / "tailscope-lab"
PROGRAMS = ROOT / "target" / "lab"
#: The server and what disturbs it; and everybody else: load, recorder, orchestrator.
SERVER_CPU, OTHER_CPU = 0, 1
#: Who puts idle CPUs to sleep: `none`, and they are halted, or a driver that can be asked not to.
IDLE_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
#: Whether each session's threads share the CPU as one (sched(7)).
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
#: The parent of all threads of the kernel.
KTHREADD = 2
#: Who a server runs as that refuses to be root.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=INT")


class ProofError(Exception):
    """A cell could not be measured: what was tried, and what went wrong."""


@contextmanager
def awake_cpus(fault: str) -> Iterator[None]:
    """Keeps idle CPUs from sleeping, as hosts for low latency do, while the block runs.

    A virtual CPU that was halted takes up to 100 µs to wake up, as much as some faults, and finds
    its caches cold; a fault that keeps it busy takes that away. The kernel's request holds for as
    long as the file is open (Documentation/power/pm_qos_interface.rst). It asks nothing of a
    machine without an idle driver, which halts its CPUs always: there a program burns what nobody
    wants of the server's CPU, in the class that gives way at once (SCHED_IDLE). But not to a thread
    whose quota comes back: the kernel looks for that at once on an idle CPU, else at the next tick
    (unthrottle_cfs_rq in kernel/sched/fair.c). So there the program offers the CPU all the time.

    Sessions are not put into groups meanwhile: the lowest class gives way only within its group,
    and PostgreSQL makes a session of each of its processes.
    """
    with ExitStack() as stack:
        stack.enter_context(written(AUTOGROUP, "0"))
        if IDLE_DRIVER.exists() and IDLE_DRIVER.read_text().strip() != "none":
            held = stack.enter_context(Path("/dev/cpu_dma_latency").open("wb", buffering=0))
            held.write(struct.pack("=i", 0))
        else:
            how = ("--yielding",) if fault == "quota" else ()
            burner = ("chrt", "--idle", 0, LAB, "hog", "--cpu", SERVER_CPU, *how)
            stack.enter_context(running(burner, on=(SERVER_CPU,)))
        yield


@contextmanager
def alone_on_server_cpu() -> Iterator[None]:
    """Keeps all threads that may run elsewhere off the server's CPU while the block runs.

    Also those of the kernel. Where a hypervisor reclaims memory, one of them runs many times a
    second (`kdamond`), and what waits for it is rightly `runqueue`, with or without a fault.
    """
    allowed_before = {}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        tid = int(task.name)
        with suppress(OSError):  # it has ended, or is bound
            allowed = os.sched_getaffinity(tid)
            if {SERVER_CPU, OTHER_CPU} <= allowed:
                os.sched_setaffinity(tid, allowed - {SERVER_CPU})
                allowed_before[tid] = allowed
    try:
        yield
    finally:
        for tid, allowed in allowed_before.items():
            with suppress(OSError):
                os.sched_setaffinity(tid, allowed)


@contextmanager
def written(setting: Path, value: str) -> Iterator[None]:
    """A setting of the kernel, where it has that, put back when the block is left."""
    if not setting.exists():
        yield
        return
    before = setting.read_text()
    setting.write_text(value)
    try:
        yield
    finally:
        setting.write_text(before)


@contextmanager
def running(
    command: Sequence[object],
    on: tuple[int, ...] = (OTHER_CPU,),
    how: signal.Signals = signal.SIGTERM,
    **options: Any,  # noqa: ANN401
) -> Iterator[subprocess.Popen]:
    """A program on these CPUs, ended by its id when the block is left, its output thrown away.

    Should this process be killed, the kernel ends the program.
    """
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    bound = ["setpriv", "--pdeathsig=TERM", "taskset", "-c", ",".join(map(str, on))]
    words = [*bound, *(str(word) for word in command)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        end(process, how)


def move(pid: int, cpu: int) -> None:
    """Binds all threads of a program to one CPU."""
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(int(task.name), {cpu})


def end(process: subprocess.Popen, how: signal.Signals = signal.SIGTERM) -> None:
    """Asks a process to end; insists after ten seconds."""
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def folder(where: str | None = None) -> Iterator[Path]:
    """A folder that every user can reach, and that goes."""
    made = Path(tempfile.mkdtemp(prefix="tailscope-proof-", dir=where))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Waits for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ProofError(f"waited {seconds:g} s in vain until {what}")
        time.sleep(0.01)


def serves(process: subprocess.Popen, port: int) -> None:
    """Waits until a server that was just started answers."""
    until(lambda: process.poll() is not None or answers(port), f"port {port} is served")
    if process.poll() is not None:
        command = " ".join(process.args)
        raise ProofError(f"the server ended at once with code {process.returncode}: {command}")


def listens_for(process: subprocess.Popen, sign: signal.Signals) -> bool:
    """Whether a process has a handler for a signal; before it has, the signal would end it."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (sign - 1))
    return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def cpu_ns(pid: int) -> int:
    """The CPU time that a process has used, by its own clock (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def stolen_cpu_s() -> float:
    """The CPU time (s) that this machine wanted and its host did not give it."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def foreign_cpu_s() -> float:
    """The CPU time (s) of all processes but this one, its descendants and the kernel's threads.

    With that of children that have ended: a compiler may be gone before it is seen.
    """
    parents, ticks = {}, {}
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = process.read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(process.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid(), KTHREADD}
    for pid in sorted(parents):
        line = [pid]
        while line[-1] in parents and line[-1] not in ours:
            line.append(parents[line[-1]])
        if line[-1] in ours:
            ours.update(line)
    foreign = sum(count for pid, count in ticks.items() if pid not in ours)
    return foreign / os.sysconf("SC_CLK_TCK")


def library(name: str) -> Path:
    """Where a shared library is, by the loader's own list."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        if line.split()[:1] == [name]:
            return Path(line.rpartition("=> ")[2])
    raise ProofError(f"{name} is not installed: scripts/setup --for-proof")


def from_memory(program: str, where: Path) -> tuple[Path, dict[str, str]]:
    """A program with its libraries, copied to a folder in memory, and the environment to run it.

    Nobody else has these files mapped, so their pages can be taken from the process; and those of
    its heap, which is jemalloc's and in shared memory.
    """
    path = shutil.which(program) or f"/usr/sbin/{program}"
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    files = [line.split()[2] for line in listed.splitlines() if "=> /" in line]
    heap = [PROGRAMS / "sharedheap.so", library("libjemalloc.so.2")]
    for file in [path, *files, *heap]:
        shutil.copy(file, where)
    environment = {
        "LD_LIBRARY_PATH": str(where),
        "LD_PRELOAD": ":".join(str(where / file.name) for file in heap),
        "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1",
    }
    return where / Path(path).name, os.environ | environment
