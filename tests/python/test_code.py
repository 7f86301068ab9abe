"""Functions behind causes, from samples with known truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tailscope.ledger.stacks import Frame, Samples, Sampling, Stack
from tailscope.present.code_text import line
from tailscope.present.pages import explain_json
from tailscope.present.pages.charts.flame import draw
from tailscope.quantity import Interval
from tailscope.statistics import flame
from tailscope.statistics.blamed_function import blamed
from tailscope.statistics.code import (
    CauseCode,
    Code,
    FunctionDifference,
    Side,
    one_cause,
)
from tailscope.statistics.slow_and_usual import Mean

#: A sample: row, cause, ns and stack.
Row = tuple[int, str, int, int]

#: Stacks with the function that time is put down to, for this rule and for that of `top`.
BLAMED = Path(__file__).parent.parent / "shared" / "blamed.json"
PROGRAM, LIBC, KERNEL = "/usr/bin/server", "/usr/lib/libc.so.6", "[kernel]"


def stack(*names: str, whole: bool = True) -> Stack:
    modules = {"k": KERNEL, "c": LIBC, "p": PROGRAM}
    frames = [Frame(name[2:], modules[name[0]], 64) for name in names]
    return Stack(tuple(frames), whole)


def samples(rows: list[Row], stacks: dict[int, Stack]) -> Samples:
    row, cause, ns, number = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Samples(
        row=np.array(row, dtype=np.int64),
        wall_ns=np.full(len(rows), 1000, dtype=np.int64),
        weight=np.ones(len(rows)),
        cause=tuple(cause),
        ns=np.array(ns, dtype=np.int64),
        stack=np.array(number, dtype=np.int64),
        stacks=stacks,
    )


def test_time_on_the_cpu_is_the_innermost_functions() -> None:
    found = blamed(stack("c:memmove", "p:rehash", "p:main"), "running")
    assert found and found.frame.name == "memmove"
    assert found.callers == ("rehash", "main")


def test_a_wait_is_put_down_to_the_programs_own_function() -> None:
    waits = stack("k:futex_wait", "c:__lll_lock_wait", "c:pthread_mutex_lock", "p:store", "p:main")
    found = blamed(waits, "lock")
    assert found and (found.frame.name, found.through) == ("store", "pthread_mutex_lock")
    assert found.callers == ("main",)


def test_a_page_fault_is_put_down_to_the_function_that_touched_the_memory() -> None:
    kernel = ("k:clear_page", "k:handle_mm_fault", "k:exc_page_fault", "k:asm_exc_page_fault")
    found = blamed(stack(*kernel, "c:memset", "p:grow", "p:main"), "fault")
    assert found and (found.frame.name, found.through) == ("grow", "memset")
    assert found.callers == ("main",)


def test_callers_of_a_stack_that_ends_early_are_not_shown() -> None:
    found = blamed(stack("p:store", "p:looks_like_a_caller", whole=False), "running")
    assert found and found.callers == ()


def test_code_without_a_symbol_is_a_place() -> None:
    found = blamed(Stack((Frame("", PROGRAM, 0x1F00),), True), "running")
    assert found and found.frame.name == "server+0x1f00"


def of_python(*names: str, whole: bool = True) -> Stack:
    """Functions of C, and (`name.py`) of Python."""
    modules = {
        "k": KERNEL,
        "c": LIBC,
        "p": PROGRAM,
        "i": "/usr/bin/python3.11",
        "e": "/usr/lib/_json.cpython-311-x86_64-linux-gnu.so",
        "s": "/usr/lib/python3.11/threading.py",
        "l": "/usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
        "d": "/srv/venv/lib/python3.11/site-packages/jobs.py",
        "y": "/srv/python3/app.py",
    }
    frames = [Frame(name[2:], modules[name[0]], 7, name[0] in "sdy") for name in names]
    return Stack(tuple(frames), whole)


@pytest.mark.parametrize("case", json.loads(BLAMED.read_text()), ids=lambda case: case["blamed"])
def test_the_function_is_the_one_that_a_screen_names(case: dict[str, Any]) -> None:
    found = blamed(of_python(*case["stack"], whole=case.get("whole", True)), case["cause"])
    assert found and found.frame.name == case["blamed"]
    assert list(found.callers) == case["callers"]


def test_the_interpreter_works_for_the_function_of_python() -> None:
    inner = ("c:memmove", "i:_PyBytes_Resize", "i:bytes_concat", "i:PyNumber_Add")
    found = blamed(of_python(*inner, "y:View.get", "i:_PyEval_Vector", "y:main"), "running")
    assert found and (found.frame.name, found.through) == ("View.get", "bytes_concat")
    assert found.callers == ("main",)
    kernel = blamed(of_python("k:tcp_sendmsg", "c:send", "i:sock_send", "y:View.get"), "running")
    assert kernel and kernel.frame.name == "tcp_sendmsg"


def test_a_library_in_c_that_python_calls_is_named_if_it_has_a_name() -> None:
    inner = ("i:PyDict_Next", "e:encoder_listencode_dict", "i:cfunction_call", "y:View.get")
    found = blamed(of_python(*inner), "running")
    assert found and found.frame.name == "encoder_listencode_dict"
    assert found.callers == ("View.get",)
    found = blamed(of_python("i:PyDict_Next", "e:", "i:cfunction_call", "y:View.get"), "running")
    assert found and found.frame.name == "View.get"


def test_a_wait_in_python_is_not_its_standard_librarys() -> None:
    waits = ("k:futex_wait", "c:sem_clockwait", "i:acquire_timed", "i:lock_PyThread_acquire_lock")
    found = blamed(of_python(*waits, "s:Condition.wait", "y:View.get", "y:main", "i:main"), "lock")
    assert found and (found.frame.name, found.through) == ("View.get", "Condition.wait")
    found = blamed(of_python(*waits, "s:Condition.wait", "s:Thread.run", "i:main"), "lock")
    assert found and found.frame.name == "Condition.wait"


def compare(
    tail: list[Row],
    usual: list[Row],
    stacks: dict[int, Stack],
    spans: tuple[int, int] = (200, 5000),
) -> list[str]:
    rng = np.random.default_rng(3)
    sides = (
        Side.of(samples(tail, stacks), spans[0], rng),
        Side.of(samples(usual, stacks), spans[1], rng),
    )
    means = tuple(
        Mean(mean, np.full(1000, mean))
        for rows, count in zip((tail, usual), spans, strict=True)
        for mean in [sum(ns for _, _, ns, _ in rows) / count]
    )
    found = one_cause("running", sides, means, 1_000_000.0, rng)
    for one in found.functions:
        assert one.difference.lo > 0
        assert one.difference.lo <= one.difference.ns <= one.difference.hi
    return [one.function for one in found.functions]


STACKS = {1: stack("p:usual", "p:main"), 2: stack("p:planted", "p:main")}


def test_what_only_slow_spans_do_is_named_with_its_size() -> None:
    tail = [(row, "running", 1_000_000, 2) for row in range(150)]
    tail += [(row, "running", 200_000, 1) for row in range(200)]
    usual = [(row, "running", 200_000, 1) for row in range(5000)]
    assert compare(tail, usual, STACKS) == ["planted"]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_named_where_all_spans_are_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def alike(spans: int) -> list[Row]:
        return [
            (row, "running", 1_000_000, int(number))
            for row, number in enumerate(rng.integers(1, 40, spans))
            if rng.random() < 0.3
        ]

    many = {number: stack(f"p:function_{number}", "p:main") for number in range(1, 40)}
    assert compare(alike(200), alike(5000), many) == []


def test_a_function_of_few_spans_is_not_named() -> None:
    tail = [(row, "running", 90_000_000, 2) for row in range(3)]
    assert compare(tail, [], STACKS) == []


def test_spans_without_a_sample_count_in_the_mean() -> None:
    rng = np.random.default_rng(1)
    side = Side.of(samples([(1, "running", 500, 1)], STACKS), 100.0, rng)
    assert side.weight.sum() == pytest.approx(100.0)
    assert len(side.weight) == 100


def test_calls_are_added_up_and_a_stack_that_ends_early_says_so() -> None:
    stacks = {1: stack("p:a", "p:main"), 2: stack("p:b", "p:main"), 3: stack("p:b", whole=False)}
    rows = [(1, "running", 100, 1), (2, "running", 300, 2), (3, "running", 200, 3)]
    slow = flame.paths(samples(rows, stacks), "running", 300.0)
    usual = flame.paths(samples(rows[:1], stacks), "running", 25.0)
    root = flame.tree("running", slow, usual)
    assert (root.tail_ns, root.usual_ns) == (300.0, 25.0)
    main, cut = root.calls
    assert (main.name, main.tail_ns) == ("main", 200.0)
    assert [(call.name, call.tail_ns, call.usual_ns) for call in main.calls] == [
        ("b", 150.0, 0.0),
        ("a", 50.0, 25.0),
    ]
    assert (cut.name, [call.name for call in cut.calls]) == (flame.CUT, ["b"])


def test_the_picture_of_calls_escapes_names_and_shades_what_usual_spans_lack() -> None:
    call = flame.Call("<script>", 90.0, 0.0)
    root = flame.Call("running", 100.0, 100.0, (call, flame.Call("both", 10.0, 10.0)))
    drawn = draw(root, 1000.0)
    assert "<script>" not in drawn and "&lt;script&gt;" in drawn
    assert drawn.count("flame-4") == 1 and drawn.count("flame-0") == 2


def test_a_clock_that_slows_spans_down_names_nothing() -> None:
    """Each slow span has a sample, usual ones a seventh: the rows say that they ran as long."""
    tail = [(row, "running", 1_000_000, 1) for row in range(200)]
    usual = [(row, "running", 1_000_000, 1) for row in range(700)]
    rng = np.random.default_rng(3)
    sides = (
        Side.of(samples(tail, STACKS), 200, rng),
        Side.of(samples(usual, STACKS), 5000, rng),
    )
    mean = Mean(140_000.0, np.full(1000, 140_000.0))
    assert not one_cause("running", sides, (mean, mean), 1_000_000.0, rng).functions


def test_what_json_prints_is_read_back_for_the_page() -> None:
    difference = FunctionDifference(
        *("planted", PROGRAM, ("handle", "main"), "nanosleep", 3e6, 0.0),
        Interval(3e6, 2e6, 4e6),
        7,
    )
    calls = flame.Call("sleep", 3e6, 0.0, (flame.Call("main", 3e6, 0.0),))
    found = Code(
        sampling=Sampling(100, 0.01, 1_003_009, 0, ("careful",)),
        tail_from_ns=1000,
        usual_ns=(10, 20),
        tail_spans=50.0,
        usual_spans=2500.0,
        tail_sampled=40,
        causes=(CauseCode("sleep", (difference,), 3e6, calls),),
    )
    read = explain_json.code(json.loads(json.dumps(found.to_dict())))
    assert read is not None
    assert replace(read, causes=()) == replace(found, causes=())
    assert read.causes[0].calls == calls
    assert line(read.functions("sleep")[0]) == line(difference)
