"""Down to the code: a function planted in one request of fifty is the first that is named."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Record
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import about

Program = Callable[..., Path]

#: Requests of tests/c/planted.c, and how long the planted function takes, in µs: longer than usual
#: requests wait for a CPU on a busy machine.
REQUESTS, PLANTED_US = 6000, 10_000
SPAN = "uprobe:{}:handle_request"


@pytest.fixture
def planted(record: Record, program: Program) -> Callable[..., Path]:
    """Records a mode of the program from its first instruction to its end."""

    def to_its_end(
        mode: str, requests: int = REQUESTS, us: int = PLANTED_US, name: str = "ledger"
    ) -> Path:
        path = program("planted.c")
        recorder = record(
            *("--span", SPAN.format(path), "--stacks=997"),
            *("--", path, mode, requests, us),
            name=name,
        )
        recorder.wait().clean()
        return recorder.ledger

    return to_its_end


def table(folder: Path, name: str, sql: str) -> list[tuple[Any, ...]]:
    """The answer to SQL over one of the tables of stacks."""
    files = str(folder / "_stacks" / f"{name}-*.pq")
    with duckdb.connect() as engine:
        engine.read_parquet(files).create_view(name)
        return engine.execute(sql).fetchall()


def named(explanation: dict[str, Any]) -> list[tuple[str, str]]:
    """Causes and functions that are named, those of the first cause first."""
    code = explanation["code"]
    functions = {cause["cause"]: cause["functions"] for cause in code["causes"]}
    order = [cause["name"] for cause in explanation["causes"]]
    return [(cause, one["function"]) for cause in order for one in functions.get(cause, ())]


def planted_ns(folder: Path, cause: str, from_ns: int, us: int = PLANTED_US) -> float:
    """The mean time (ns) of a cause in slow spans, of those alone that a planted function made so
    long: other work of the machine takes some places of the tail."""
    time = f"{cause}_ns" if cause != "running" else f"wall_ns - ({ledger.sum_of(ledger.CAUSES)})"
    planted = f"coalesce(sum({time}) FILTER ({time} > {us * 800}), 0)"
    sql = f"SELECT {planted} / count(*) FROM spans WHERE wall_ns >= {from_ns}"
    return float(ledger.query(folder, sql)[0][0])


def assert_size(difference: dict[str, float], truth: float) -> None:
    """The interval is the truth's, within 15 %: a tick sees each span on the CPU a few times."""
    slack = 0.15 * abs(truth)
    ends = (difference["lo"] - slack, difference["hi"] + slack)
    assert truth != 0 and ends[0] < truth < ends[1], (difference, truth)


@pytest.mark.measures
@pytest.mark.parametrize(
    ("mode", "cause", "function"),
    [
        ("cpu", "running", "planted_cpu"),
        pytest.param("sleep", "sleep", "planted_sleep", marks=pytest.mark.more),
        ("lock", "lock", "planted_lock"),
    ],
)
def test_the_planted_function_is_named_first_with_its_size_and_callers(
    planted: Callable[..., Path], mode: str, cause: str, function: str
) -> None:
    folder = planted(mode)
    explanation = ledger.explain(folder)
    found = named(explanation)
    assert found[:1] == [(cause, function)], found
    causes = {one["cause"]: one for one in explanation["code"]["causes"]}
    first = causes[cause]["functions"][0]
    assert first["callers"][:2] == ["handle_request", "main"], first
    truth = planted_ns(folder, cause, explanation["code"]["tail_from_ns"])
    assert_size(first["with_calls"], truth)
    assert first["difference"]["lo"] > 0.8 * first["with_calls"]["lo"], first


@pytest.mark.measures
def test_page_faults_are_put_down_to_the_function_that_touched_the_memory(record: Record) -> None:
    recorder = record(
        *("--stacks=997", "--", installed.LAB / "faultbench"),
        *("--spans", 4000, "--seconds", 60, "--every", 20, "--pages", 1000),
    )
    recorder.wait().clean()
    code = ledger.explain(recorder.ledger)["code"]
    functions = {one["cause"]: one["functions"] for one in code["causes"]}
    # The kernel's exc_page_fault and what it calls are on top of each of these stacks.
    (first,) = functions["fault"]
    assert (first["function"], first["callers"][:1]) == ("work", ["bench_thread"]), first
    assert first["spans"] >= 5 and first["difference"]["lo"] > 0


def test_each_long_wait_is_sampled_though_some_switches_are_not_told(
    planted: Callable[..., Path],
) -> None:
    # Process 1 takes in each orphan. A kernel was found that tells no program of its switches.
    with Started(["sh", "-c", "while :; do (sleep 0.001 &); done"]):
        folder = planted("sleep")
    waits = f"cause = 'sleep' AND ns > {PLANTED_US * 800} AND function = 'planted_sleep'"
    files = {name: str(folder / "_stacks" / f"{name}-*.pq") for name in ("samples", "stacks")}
    with duckdb.connect() as engine:
        for name, of in files.items():
            engine.read_parquet(of).create_view(name)
        sql = f"SELECT count(*) FROM samples JOIN stacks USING (stack) WHERE {waits}"
        ((sampled,),) = engine.execute(sql).fetchall()
    slow = ledger.count(folder, f"sleep_ns > {PLANTED_US * 800}")
    # Each of the planted, and no wait for a CPU was taken for one of them or the other way round.
    assert sampled == slow == REQUESTS // 50


@pytest.mark.more
@pytest.mark.measures
def test_the_function_that_takes_longer_than_before_is_named_by_diff(
    planted: Callable[..., Path],
) -> None:
    lengths = (PLANTED_US, 2 * PLANTED_US)
    sides = [planted("cpu", us=us, name=f"cpu{us}") for us in lengths]
    (kind,) = ledger.diff(*sides)["kinds"]
    # Longer requests also wait for the CPU more often on a busy machine.
    causes = {one["cause"]: one["functions"] for one in kind["code"]["causes"]}
    assert causes.get("running"), kind["code"]
    first = causes["running"][0]
    assert first["function"] == "planted_cpu", first
    assert first["change"]["lo"] <= first["change"]["ns"] <= first["change"]["hi"]
    from_ns = (kind["code"]["base_from_ns"], kind["code"]["new_from_ns"])
    base, new = map(planted_ns, sides, ("running", "running"), from_ns, lengths)
    assert new > 1.5 * base, (base, new)
    assert_size(first["with_calls"], new - base)


@pytest.mark.measures
def test_a_function_that_the_compiler_put_into_its_caller_is_named(
    record: Record, program: Program
) -> None:
    path = program("planted.cc", compiler="c++")
    recorder = record(
        *("--span", SPAN.format(path), "--stacks=997"), *("--", path, REQUESTS, PLANTED_US)
    )
    recorder.wait().clean()
    explanation = ledger.explain(recorder.ledger)
    assert named(explanation)[:1] == [("running", "shop::Cart::planted_inline")]
    first = explanation["code"]["causes"][0]["functions"][0]
    assert first["callers"][:2] == ["shop::Cart::checkout", "handle_request"], first


def symbols(folder: Path, *debug: Path) -> dict[str, dict[str, Any]]:
    """What `tailscope symbols` says of each file with code, by its name."""
    folders = [word for one in debug for word in ("--debug", one)]
    command = [installed.tailscope(), "symbols", folder, *folders, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {Path(file["path"]).name: file for file in json.loads(done.stdout)["files"]}


@pytest.mark.measures
def test_functions_of_a_stripped_program_are_named_later(
    record: Record, program: Program, folder: Path
) -> None:
    path = program("planted.cc", compiler="c++")
    debug = folder / "debug"
    debug.mkdir()
    for options in (("--only-keep-debug", path, debug / "of-a-build"), ("--strip-all", path)):
        kept = "--keep-symbol=handle_request"  # for the probe alone
        subprocess.run(["objcopy", kept, *options], check=True)
    recorder = record(
        *("--span", SPAN.format(path), "--stacks=997"), *("--", path, REQUESTS, PLANTED_US)
    )
    recorder.wait().clean()
    ours = symbols(recorder.ledger)[path.name]
    assert ours["symbols"] == [str(path)], ours
    assert ours["named"] < ours["addresses"] and ours["new"] == 0, ours
    before = named(ledger.explain(recorder.ledger))
    assert before and before[0][1].startswith(f"{path.name}+0x"), before
    ours = symbols(recorder.ledger, debug)[path.name]
    assert ours["symbols"] == [str(debug / "of-a-build"), str(path)], ours
    assert ours["new"] > 0 and ours["has_symbols"], ours
    after = ledger.explain(recorder.ledger)
    assert named(after)[:1] == [("running", "shop::Cart::planted_inline")]
    first = after["code"]["causes"][0]["functions"][0]
    assert first["callers"][:2] == ["shop::Cart::checkout", "handle_request"], first


@pytest.fixture(scope="session")
def rust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/programs/planted.rs."""
    output = tmp_path_factory.mktemp("rust") / "planted"
    output.parent.chmod(0o755)
    source = installed.ROOT / "tests" / "programs" / "planted.rs"
    command = ["rustc", "--edition", "2024", "-O", "-o", str(output), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return output


@pytest.mark.measures
@pytest.mark.parametrize(
    ("mode", "cause"),
    [
        pytest.param("cpu", "running", marks=pytest.mark.more),
        pytest.param("sleep", "sleep", marks=pytest.mark.more),
        ("lock", "lock"),
    ],
)
def test_a_function_in_rust_is_named_first(
    record: Record, rust: Path, mode: str, cause: str
) -> None:
    recorder = record(
        *("--span", SPAN.format(rust), "--stacks=997"), *("--", rust, mode, REQUESTS, PLANTED_US)
    )
    recorder.wait().clean()
    explanation = ledger.explain(recorder.ledger)
    found = named(explanation)
    assert found[:1] == [(cause, f"planted::Shop::planted_{mode}")], found
    assert explanation["code"]["sampling"]["cut_share"] < 0.1


def test_nothing_is_named_where_nothing_was_planted(planted: Callable[..., Path]) -> None:
    explanation = ledger.explain(planted("none"))
    tail = explanation["excess_ns"]
    code = explanation["code"]
    assert code["sampling"]["samples"] > 100
    large = [
        (cause["cause"], one["function"], one["difference"]["ns"])
        for cause in code["causes"]
        for one in cause["functions"]
        if one["function"].startswith("planted") or one["difference"]["ns"] > tail
    ]
    assert not large, code


def test_samples_lie_within_their_spans_and_stacks_are_whole(
    planted: Callable[..., Path],
) -> None:
    folder = planted("sleep", requests=2000)
    outside = "NOT (start_ns - 1000 <= time_ns AND time_ns <= start_ns + wall_ns + 1000)"
    assert table(folder, "samples", f"SELECT count(*) FROM samples WHERE {outside}") == [(0,)]
    threads = "SELECT count(DISTINCT tid), count(DISTINCT span) FROM samples"
    assert table(folder, "samples", threads) == [(1, 1)]
    # The program has no frame pointers, and neither has the C library: tables tell the callers.
    chains = dict(
        table(
            folder,
            "stacks",
            "SELECT stack, string_agg(function, ' ' ORDER BY depth) FROM stacks "
            "WHERE whole = 1 GROUP BY stack",
        )
    )
    seen = table(folder, "samples", "SELECT stack, count(*) FROM samples GROUP BY stack")
    right = sum(count for one, count in seen if "handle_request main" in chains.get(one, ""))
    total = sum(count for _, count in seen)
    # What the program did before the recorder knew which one it was has no callers.
    assert right >= 0.9 * total > 0, (right, total, chains)
    assert about(folder)["stacks"]["period_ns"] > 0


def test_a_program_without_symbols_gets_places_and_no_names(
    record: Record, program: Program, folder: Path
) -> None:
    path = program("planted.c")
    stripped = folder / "stripped"
    subprocess.run(["strip", "-o", stripped, path], check=True)
    os.chmod(stripped, 0o755)
    # The program has no symbol for a probe, but the C library has.
    maps = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in maps if line.endswith("libc.so.6"))
    recorder = record(
        *("--span", f"uprobe:{libc}:clock_nanosleep", "--stacks=997"),
        *("--", stripped, "sleep", 2000, PLANTED_US),
    )
    recorder.wait().clean()
    own = table(
        recorder.ledger,
        "stacks",
        "SELECT DISTINCT function, address > 0 FROM stacks WHERE module LIKE '%/stripped'",
    )
    assert own == [("", True)], own
