"""Down to Python: a function planted in a server written in it is named first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Record
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started
from rig.waiting import until
from test_stacks import assert_size, planted_ns, table
from test_stacks_jit import REQUESTS, ask, served

SOURCE = installed.ROOT / "tests" / "programs" / "planted.py"


def interpreter(version: str) -> str:
    """The interpreter of a version that is on this machine."""
    found = [shutil.which(f"python{version}")]
    found += Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")
    for path in filter(None, found):
        ask_it = [path, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        said = subprocess.run(ask_it, capture_output=True, text=True, timeout=60).stdout
        if said.strip() == version:
            return str(path)
    pytest.skip(f"Python {version} is not installed")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Started, int, str]]:
    """tests/programs/planted.py in a mode, by an interpreter; its parameter says which."""
    version, mode = request.param
    python = interpreter(version) if version else sys.executable
    port = free_port()
    with Started([python, SOURCE, port, mode]) as started:
        served(started, port)
        yield started, port, mode


def more(version: str, mode: str) -> object:
    return pytest.param((version, mode), marks=pytest.mark.more, id=f"{version or 'own'}-{mode}")


@pytest.mark.measures
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(("", "cpu"), id="cpu"),
        pytest.param(("", "sleep"), id="sleep"),
        more("", "lock"),
        *(more(version, "cpu") for version in ("3.11", "3.12", "3.13")),
        *(more(version, "sleep") for version in ("3.12", "3.13")),
        *(more(version, "lock") for version in ("3.12", "3.13")),
        *(more(version, "fault") for version in ("3.11", "3.12", "3.13")),
    ],
    indirect=True,
)
def test_a_function_of_python_is_named_first_with_its_callers(
    record: Record, server: tuple[Started, int, str]
) -> None:
    started, port, mode = server
    recorder = record("-p", started.pid, "--stacks=997").ready()
    ask(port, REQUESTS)
    recorder.interrupt().clean()
    explanation = ledger.explain(recorder.ledger)
    code = explanation["code"]
    cause = "running" if mode == "cpu" else mode
    functions = {one["cause"]: one["functions"] for one in code["causes"]}
    assert functions.get(cause), code
    first = functions[cause][0]
    name = "Planted.lock_itself" if mode == "lock" else f"Planted.{mode}"
    assert (first["function"], first["module"]) == (name, str(SOURCE)), first
    callers = ["Planted.lock", "Handler.do_GET"] if mode == "lock" else ["Handler.do_GET"]
    assert first["callers"][: len(callers)] == callers, first
    if mode in ("cpu", "sleep"):  # these last for a time that is known
        assert_size(first["with_calls"], planted_ns(recorder.ledger, cause, code["tail_from_ns"]))
    # The C function that runs those of Python stands nowhere in their place.
    sql = (
        "SELECT count(*) FILTER (function = '_PyEval_EvalFrameDefault'), "
        "count(*) FILTER (python = 1), "
        "count(*) FILTER (python = 1 AND function = '') FROM stacks"
    )
    ((instead, python, unnamed),) = table(recorder.ledger, "stacks", sql)
    assert python > 100 and unnamed < 0.02 * python, (python, unnamed)
    assert instead < 0.02 * python, (instead, python)


def test_a_process_that_lets_who_reads_its_memory_wait_holds_nobody_up(record: Record) -> None:
    """The name of one of its functions lies in memory that never comes."""
    port = free_port()
    program = installed.SOURCES.parent / "programs" / "unreadable.py"
    with Started([interpreter("3.11"), program, port]) as server:
        until(lambda: answers(port) or not server.runs, "it serves its port")
        if not server.runs and server.wait().code == 77:
            pytest.skip("this kernel has no userfaultfd(2), or keeps it from this user")
        recorder = record("-p", server.pid, "--stacks=997").ready()
        ask(port, 100)
        recorder.interrupt().clean()
    assert ledger.count_by_span(recorder.ledger) == {"GET /": 100}
    names = table(
        recorder.ledger, "stacks", "SELECT DISTINCT function FROM stacks WHERE python = 1"
    )
    functions = {name for (name,) in names}
    assert "spin" not in functions and "" in functions, functions
    assert {"Handler.do_GET", "readable"} <= functions, functions
