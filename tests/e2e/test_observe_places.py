"""`tailscope observe` on where a program is, by the edges that its compiler marks."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed
from rig.observer import CPUS, NEEDS_TWO_CPUS, Observe, has_channels, report
from rig.processes import Started
from rig.waiting import until

#: The lines of the loop in `long_one`: a turn is of its head or of its body.
HOT = (installed.ROOT / "tests" / "c" / "hot.c").read_text().splitlines()
HEAD = 1 + HOT.index("	for (unsigned long i = 0; i < 3 * times; i++)")
LOOP = {HEAD, HEAD + 1}

pytestmark = NEEDS_TWO_CPUS


def edges_of(folder: Path, compiler: str) -> Path:
    """The runtime that programs with edges are linked with."""
    edges = folder / "edges.o"
    runtime = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o", edges]
    runtime += [f"-I{installed.SDK}", installed.SDK / "tailscope_edges.c"]
    subprocess.run([str(word) for word in runtime], check=True, timeout=60)
    return edges


def where(observe: Observe, hot: Path) -> dict:
    """What is told of where `hot` is, in a second of it."""
    with Started(["taskset", "-c", str(CPUS[0]), hot, "on"]) as running:
        until(lambda: has_channels(running.pid), "it made its channels")
        return report(
            observe(
                *("--signal", f"channel:{running.pid}:rounds", "--period", 10_000),
                *("--tag", f"channel:{running.pid}:edge", "--duration", "1s", "--json"),
            )
        )


def lines_of_its_loop(told: dict) -> set[int]:
    """The lines of `hot.c` that the two most frequent places in `long_one` are told by."""
    names = [(v["names"] or [""])[0] or "" for v in told["by_tag"]["values"][:2]]
    lines = [re.fullmatch(r"long_one\+0x[0-9a-f]+ hot\.c:(\d+)", name) for name in names]
    return {int(line[1]) for line in lines if line}


@pytest.mark.parametrize(("compiler", "option"), [("clang", "trace-pc-guard"), ("gcc", "trace-pc")])
def test_functions_of_known_length_have_their_share(
    observe: Observe, program: Callable[..., Path], compiler: str, option: str, folder: Path
) -> None:
    flags = ("-g", f"-fsanitize-coverage={option}", str(edges_of(folder, compiler)))
    told = where(observe, program("hot.c", *flags, compiler=compiler))
    functions = {f["name"]: f for f in told["by_tag"]["functions"]}
    rounds = {n: f["share"] * (f["per_second"] or [0])[0] for n, f in functions.items()}
    # Whatever else ran on its CPU, and in whichever function that struck it: three times as many.
    assert rounds["long_one"] / rounds["short_one"] == pytest.approx(3, rel=0.1)
    assert functions["long_one"]["share"] + functions["short_one"]["share"] > 0.95
    found = lines_of_its_loop(told)
    assert found and found <= LOOP


@pytest.mark.parametrize("compressed", ["none", "zlib", "zstd"])
def test_a_stripped_program_is_told_by_its_separate_debug_file(
    observe: Observe, program: Callable[..., Path], folder: Path, compressed: str
) -> None:
    flags = ("-g", "-fsanitize-coverage=trace-pc-guard", str(edges_of(folder, "clang")))
    whole = program("hot.c", *flags, "-Wl,--build-id=none", compiler="clang")
    hot, debug = folder / "hot", folder / "hot.debug"
    shutil.copy(whole, hot)

    def binutils(*command: object) -> None:
        subprocess.run([str(word) for word in command], check=True, timeout=60, cwd=folder)

    packed = f"--compress-debug-sections={compressed}"
    binutils("objcopy", "--only-keep-debug", packed, hot, debug)
    binutils("strip", hot)
    none = where(observe, hot)
    assert all(function["name"] is None for function in none["by_tag"]["functions"][:1])
    assert any("symbols" in notice and str(hot) in notice for notice in none["notices"]), none

    binutils("objcopy", "--add-gnu-debuglink=hot.debug", hot)
    told = where(observe, hot)
    functions = {f["name"]: f["share"] for f in told["by_tag"]["functions"]}
    assert functions["long_one"] + functions["short_one"] > 0.95
    found = lines_of_its_loop(told)
    assert found and found <= LOOP
    assert not any("debug" in notice for notice in told["notices"])

    # Of another build: its CRC is not the one that the program links to.
    debug.write_bytes(debug.read_bytes() + b"\0")
    refused = where(observe, hot)
    assert lines_of_its_loop(refused) == set()
    assert {f["name"] for f in refused["by_tag"]["functions"]}.isdisjoint({"long_one", "short_one"})
    said = f"{debug} belongs to another build than {hot}"
    assert any(said in notice for notice in refused["notices"]), refused["notices"]
