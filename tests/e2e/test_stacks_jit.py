"""Down to code made at run time: a function planted in a server of Node or Java is named first."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Record
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.java import java, jcmd
from rig.processes import Started
from rig.recorder import Recorder
from rig.waiting import until
from test_stacks import SPAN, Program, assert_size, planted_ns, table

#: Enough for compilers to be done, and for the tail.
WARM_UP, REQUESTS = 600, 6000


def ask(port: int, requests: int) -> None:
    """Sends requests, one after the other, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        for _ in range(requests):
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert answer.read() == b"ok\n"
    finally:
        connection.close()


def served(server: Started, port: int) -> None:
    """The server answers, and its compilers have had work."""
    until(lambda: answers(port) or not server.runs, "the server answers", 30)
    assert server.runs, server.wait()
    ask(port, WARM_UP)


def first(recorder: Recorder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is said of stacks, and the function that is named first under `running`."""
    explanation = ledger.explain(recorder.ledger)
    code = explanation["code"]
    running = [one for one in code["causes"] if one["cause"] == "running"]
    assert running and running[0]["functions"], code
    return code, running[0]["functions"][0]


def truth(recorder: Recorder, code: dict[str, Any]) -> float:
    """The mean CPU time (ns) that the planted function adds to a slow span, by the rows."""
    return planted_ns(recorder.ledger, "running", code["tail_from_ns"])


@pytest.fixture
def node(folder: Path) -> Iterator[tuple[Started, int]]:
    """tests/programs/planted.js, which writes a perf map."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    port = free_port()
    source = installed.ROOT / "tests" / "programs" / "planted.js"
    # V8 also writes a log, for each isolate into the working directory unless it is given a file.
    log = ("--no-logfile-per-isolate", f"--logfile={folder / 'v8.log'}")
    with Started(["node", "--perf-basic-prof", *log, source, port]) as server:
        try:
            served(server, port)
            yield server, port
        finally:
            Path(f"/tmp/perf-{server.pid}.map").unlink(missing_ok=True)


@pytest.fixture
def hotspot() -> Iterator[tuple[Started, int]]:
    """tests/java/Planted.java."""
    port = free_port()
    with Started(java("Planted", port, options=("-XX:+PreserveFramePointer",))) as server:
        try:
            served(server, port)
            yield server, port
        finally:
            Path(f"/tmp/perf-{server.pid}.map").unlink(missing_ok=True)


@pytest.mark.measures
def test_a_function_of_node_is_named_first(record: Record, node: tuple[Started, int]) -> None:
    server, port = node
    recorder = record("-p", server.pid, "--stacks=997").ready()
    ask(port, REQUESTS)
    recorder.interrupt().clean()
    code, function = first(recorder)
    assert function["function"] == "plantedCpu planted.js:13", function
    assert function["module"] == "[JIT]"
    assert_size(function["with_calls"], truth(recorder, code))
    assert code["sampling"]["unnamed_jit_share"] < 0.05, code["sampling"]


@pytest.mark.more
@pytest.mark.measures
def test_a_method_of_java_is_named_first_if_the_jvm_wrote_its_map(
    record: Record, hotspot: tuple[Started, int]
) -> None:
    server, port = hotspot
    recorder = record("-p", server.pid, "--stacks=997").ready()
    ask(port, REQUESTS)
    subprocess.run(
        jcmd(server.pid, "Compiler.perfmap"), check=True, timeout=60, stdout=subprocess.DEVNULL
    )
    recorder.interrupt().clean()
    code, function = first(recorder)
    assert function["function"] == "Planted.plantedCpu", function
    assert_size(function["with_calls"], truth(recorder, code))


def test_code_that_is_mapped_from_a_memfd_has_the_names_of_the_perf_map(
    record: Record, program: Program
) -> None:
    path = program("remapped.c")
    recorder = record(*("--span", SPAN.format(path), "--stacks=997"), *("--", path, 500))
    recorder.wait().clean()
    sql = "SELECT DISTINCT function FROM stacks WHERE module = '[JIT]'"
    assert table(recorder.ledger, "stacks", sql) == [("planted_jit",)]
    sql = "SELECT count(*) FROM stacks WHERE module LIKE '%memfd%'"
    assert table(recorder.ledger, "stacks", sql) == [(0,)]


def test_code_without_names_is_called_jit_code_and_a_hint_says_what_to_do(
    record: Record, hotspot: tuple[Started, int]
) -> None:
    server, port = hotspot
    recorder = record("-p", server.pid, "--stacks=997").ready()
    ask(port, REQUESTS)
    # A map of another user's is not trusted, whatever it says.
    lie = Path(f"/tmp/perf-{server.pid}.map")
    maps = [line.split() for line in Path(f"/proc/{server.pid}/maps").read_text().splitlines()]
    code_in_memory = [one[0].split("-") for one in maps if "x" in one[1] and len(one) == 5]
    assert code_in_memory
    lie.write_text(
        "".join(f"{start} {int(end, 16) - int(start, 16):x} lie\n" for start, end in code_in_memory)
    )
    os.chown(lie, 65534, 65534)
    recorder.interrupt().clean()
    code, _ = first(recorder)
    names = {one["function"] for cause in code["causes"] for one in cause["functions"]}
    assert "JIT code" in names and "lie" not in names, names
    assert code["sampling"]["unnamed_jit_share"] > 0.05
    text = subprocess.run(
        [installed.tailscope(), "explain", recorder.ledger],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    ).stdout
    assert "Compiler.perfmap" in text, text
