"""What the end-to-end tests are given: a socket of their own, recorders, programs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rig import bpf, installed
from rig.agent import Agent, configuration
from rig.guard import Guard, Replica, StartGuard
from rig.hostile import attack  # noqa: F401
from rig.observer import CPUS, Observe, has_channels
from rig.processes import Ended, Started, favoured
from rig.quiet import Quiet
from rig.recorder import Recorder, doctor
from rig.timeline import Timeline
from rig.waiting import until

QUIET = Quiet()


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which every part of the command is found."""
    assert installed.tailscope().exists(), "nothing is built: make build"
    return installed.environment(tmp_path_factory.mktemp("shims"))


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> None:
    """A measurement begins when others leave the machine alone; its report says if they did not."""
    if request.node.get_closest_marker("measures"):
        print(QUIET.wait(), end="")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if summary := QUIET.summary():
        terminalreporter.write_line(summary)


@pytest.fixture(autouse=True)
def folder(commands: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path that every user can reach, for the recorder's socket and for ledgers."""
    made = Path(tempfile.mkdtemp(prefix="tailscope-"))
    made.chmod(0o755)
    for name, value in commands.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TAILSCOPE_SOCKET", str(made / "sdk.sock"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def recordable(commands: dict[str, str]) -> None:
    """Skips where this user or this kernel can't record, with the doctor's reason."""
    doctor()


Record = Callable[..., Recorder]


@pytest.fixture
def record(recordable: None, folder: Path) -> Iterator[Record]:
    """Starts recorders: `record("-p", pid)`. The ledger is folder/NAME. All are ended."""
    with ExitStack() as stack:

        def start(*arguments: object, name: str = "ledger", under: tuple = ()) -> Recorder:
            recorder = Recorder(folder / name, *arguments, under=under)
            stack.enter_context(recorder)
            return recorder

        yield start


Begin = Callable[..., Timeline]


@pytest.fixture
def timeline(recordable: None, folder: Path) -> Iterator[Begin]:
    """Starts flight recorders, with their windows in folder/windows. All are ended."""
    with ExitStack() as stack:

        def start(*arguments: object) -> Timeline:
            return stack.enter_context(Timeline(folder / "windows", *arguments))

        yield start


@pytest.fixture
def agent(
    recordable: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Agent]]:
    """Starts agents: `agent(LOOPBENCH, ledger="…")`. All are ended."""
    # Programs wait for its answer, so that none begins without it on a busy machine.
    monkeypatch.setenv("TAILSCOPE_PATIENCE_MS", "60000")
    with ExitStack() as stack:

        def start(*processes: str, under: tuple = (), **sections: str) -> Agent:
            config = configuration(folder, *processes, **sections)
            return stack.enter_context(Agent(folder, config, under=under))

        yield start


@pytest.fixture
def run() -> Iterator[Callable[..., Started]]:
    """Starts programs of the lab, by name, or others, by path. All are ended."""
    with ExitStack() as stack:

        def start(program: str | Path, *arguments: object) -> Started:
            path = installed.LAB / program if isinstance(program, str) else program
            return stack.enter_context(Started([path, *arguments]))

        yield start


@pytest.fixture
def observe(folder: Path) -> Observe:
    """Runs `tailscope observe` to its end."""

    def run(*arguments: object, under: tuple[str, ...] = ()) -> Ended:
        command = [*favoured(), *under, installed.tailscope(), "observe", "--quiet", *arguments]
        with Started(command) as started:
            return started.wait(60)

    return run


@pytest.fixture
def paced() -> Iterator[Callable[..., Started]]:
    """Starts the lab's `paced` on the first CPU, and waits until it counts."""
    with ExitStack() as stack:

        def start(*arguments: object) -> Started:
            command = [installed.LAB / "paced", "--seconds", 600, "--cpu", CPUS[0], *arguments]
            command = [*favoured(), *command]
            started = stack.enter_context(Started(command))
            until(lambda: has_channels(started.pid), "paced made its channels")
            return started

        yield start


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a program of tests/c, once for each set of flags."""
    made: dict[tuple[str, ...], Path] = {}

    def compile_once(source: str, *flags: str, compiler: str = "cc") -> Path:
        key = (source, compiler, *flags)
        if key not in made:
            output = tmp_path_factory.mktemp("program") / source.rsplit(".", 1)[0]
            output.parent.chmod(0o755)
            made[key] = installed.compile_program(source, output, *flags, compiler=compiler)
        return made[key]

    return compile_once


@pytest.fixture
def nothing_left(recordable: None) -> Iterator[None]:
    """Afterwards the kernel holds no program, link or pin that was not there before."""
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is not installed")
    before, pinned = bpf.orphans(), bpf.pins()
    yield
    until(lambda: bpf.orphans() <= before, f"only {before} left in the kernel")
    # Somebody else's may come and go meanwhile; those of ours go with their recorder.
    until(lambda: bpf.pins() <= pinned, f"only {pinned} pinned")


@pytest.fixture
def pair(folder: Path) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas. Both are ended."""
    with ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            made.append(Replica(folder, name))
            stack.callback(made[-1].end)
        yield made[0], made[1]


@pytest.fixture
def guard(recordable: None, pair: tuple[Replica, Replica]) -> Iterator[StartGuard]:
    """Starts guards in front of the pair. All are ended."""
    with ExitStack() as stack:

        def start(*options: object, **how: Any) -> Guard:  # noqa: ANN401
            return stack.enter_context(Guard(pair, *options, **how))

        yield start


@pytest.fixture
def unwatched(pair: tuple[Replica, Replica]) -> Iterator[StartGuard]:
    """The same, also where no kernel programs can be loaded."""
    with ExitStack() as stack:

        def start(*options: object, **how: Any) -> Guard:  # noqa: ANN401
            return stack.enter_context(Guard(pair, *options, **how))

        yield start
