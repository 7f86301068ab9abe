"""`tailscope observe` on real programs: rates that are known, and everything that can be wrong."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rig import installed
from rig.java import java, jcmd
from rig.processes import NOBODY, Ended, Started
from rig.waiting import until

CPUS = sorted(os.sched_getaffinity(0))
#: Cycles between two steps of the lab's `paced`.
STEP = 2000

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="an observer needs a second CPU")

Observe = Callable[..., Ended]


@pytest.fixture
def observe(folder: Path) -> Observe:
    """Runs `tailscope observe` to its end."""

    def run(*arguments: object, under: tuple[str, ...] = ()) -> Ended:
        command = [*under, installed.tailscope(), "observe", "--quiet", *arguments]
        with Started(command) as started:
            return started.wait(60)

    return run


@pytest.fixture
def paced() -> Iterator[Callable[..., Started]]:
    """Starts the lab's `paced` on the first CPU, and waits until it counts."""
    with ExitStack() as stack:

        def start(*arguments: object) -> Started:
            command = [installed.LAB / "paced", "--seconds", 60, "--cpu", CPUS[0], *arguments]
            started = stack.enter_context(Started(command))
            until(lambda: has_channels(started.pid), "paced made its channels")
            return started

        yield start


def has_channels(pid: int) -> bool:
    return "memfd:tailscope-channels" in Path(f"/proc/{pid}/maps").read_text()


def report(ended: Ended) -> dict[str, Any]:
    return json.loads(ended.clean().out)


def test_a_known_rate_is_told_and_none_is_above_it(observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    told = report(
        observe(
            *("--signal", f"channel:{pid}:rounds", "--signal", f"channel:{pid}:doubled"),
            *("--period", 10 * STEP, "--duration", "1s", "--json", "--at-most", f"1/{STEP}"),
        )
    )
    rounds, doubled = told["rates"]
    # Others may take the program's CPU, so it may be slower than its pace, but never faster.
    assert 0 < rounds["per_cycle"] <= 1.01 / STEP
    # Both grow in one step, so whatever happens their rates are as two to one.
    assert doubled["per_second"] == pytest.approx(2 * rounds["per_second"], rel=0.01)
    assert told["correlation"] > 0.9 or rounds["kept"]["deviation"] < rounds["kept"]["mean"] / 100
    assert told["kept"] + told["disagreed"] + told["preempted"] < told["samples"]
    # What is impossible is dropped, but for two samples in a row that are held up for equally long.
    assert told["impossible"]["kept"] <= told["impossible"]["all"]
    assert told["impossible"]["kept"] * 10_000 <= told["kept"]
    assert told["cpu"] != CPUS[0]
    assert sum(count for _, count in rounds["cells"]) == told["kept"]
    assert sum(count for _, _, count in told["joint"]) == told["kept"]
    # Two to one, but for pairs in which a step came between the two loads of one sample.
    alike = (n for x, y, n in told["joint"] if y == pytest.approx(2 * x, rel=0.01))
    assert sum(alike) > told["kept"] / 2
    ratios = told["ratios"]
    assert ratios["kept"]["count"] + ratios["without"] == told["kept"]
    assert sum(count for _, count in ratios["cells"]) == ratios["kept"]["count"]
    assert ratios["kept"]["p50"] == pytest.approx(0.5, rel=0.01)
    assert sum(s["kept"] for s in told["series"]) == told["kept"]
    assert told["effect"]["phases"] >= 10
    assert told["effect"]["low"] <= told["effect"]["share"] <= told["effect"]["high"]


def test_rates_are_told_by_the_value_of_a_tag(observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP, "--phases", 3, "--phase-us", 2000).pid
    told = report(
        observe(
            *("--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:phase"),
            *("--period", 5 * STEP, "--duration", "1s", "--json"),
        )
    )
    values = {tuple(v["tags"]): v for v in told["by_tag"]["values"]}
    assert set(values) == {(0,), (1,), (2,)}
    hz = told["clock_hz"]
    for (phase,), value in values.items():
        # In phase n a step takes n + 1 times as long; a pair of samples sees one step more at most.
        assert 0 < value["per_second"][0] / hz <= 1.05 / (STEP * (phase + 1))
    assert values[(0,)]["per_second"][0] > values[(2,)]["per_second"][0]
    assert sum(v["share"] for v in told["by_tag"]["values"]) == pytest.approx(1, abs=1e-6)
    pairs = sum(v["samples"] for v in told["by_tag"]["values"])
    assert pairs + told["by_tag"]["changed"] == told["kept"]


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


def test_a_hardware_counter_is_read_or_its_absence_told(observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    ended = observe(
        *("--signal", f"counter:{pid}:instructions", "--period", 100_000),
        *("--duration", "500ms", "--json"),
    )
    if ended.code == 3:
        assert "no hardware counters" in ended.err or "no such counter" in ended.err, ended.err
    else:
        assert report(ended)["rates"][0]["all_per_second"] > 0
    wrong = observe("--signal", f"counter:{pid}:instrutions")
    assert wrong.code == 3 or (wrong.code == 2 and "is it instructions" in wrong.err)


def test_a_core_is_counted_from_beside_or_what_is_missing_is_told(observe: Observe) -> None:
    ended = observe("--signal", f"core:{CPUS[0]}:instructions", "--duration", "500ms", "--json")
    if ended.code == 3:
        reasons = (
            "no hardware counters",
            "has no term 'any'",
            "no other hardware thread",
            "refused",
        )
        assert any(reason in ended.err for reason in reasons), ended.err
    else:
        assert report(ended)["placement"] == "same core"
    nowhere = observe("--signal", f"core:{CPUS[0]}:instructions", "--on", "other-core")
    assert nowhere.code == 3 or (nowhere.code == 2 and "share" in nowhere.err)


def test_one_cpu_is_enough_for_periods_of_milliseconds(observe: Observe) -> None:
    alone = ("taskset", "-c", str(CPUS[0]))
    command = [*alone, installed.LAB / "paced", "--seconds", 60, "--cycles", STEP]
    with Started(command) as started:
        until(lambda: has_channels(started.pid), "paced made its channels")
        told = report(
            observe(
                *("--signal", f"channel:{started.pid}:rounds", "--period", 20_000_000),
                *("--duration", "1s", "--json", "--no-pauses"),
                under=alone,
            )
        )
    # The observer sleeps between samples, on the CPU where the program runs meanwhile.
    assert told["cpu"] == told["observed_cpu"] == CPUS[0]
    assert 0 < told["rates"][0]["all_per_second"] / told["clock_hz"] <= 1.01 / STEP


def test_a_counter_of_an_unmodified_jvm_is_read(observe: Observe, folder: Path) -> None:
    collections = 2
    with Started(java("Nesting", 200, 120)) as jvm:
        # Full collections of the serial collector, which this program has no need of.
        name = f"hsperf:{jvm.pid}:sun.gc.collector.1.invocations"

        def begun() -> bool:
            wrong = observe("--signal", f"{name[:-1]}")
            return wrong.code == 2 and "is it sun.gc.collector.1.invocations" in wrong.err

        until(begun, "the JVM made its counters")
        raw = ("--period", 200_000, "--no-pauses", "--output", folder / "raw")
        command = [installed.tailscope(), "observe", "--quiet", "--json", "--signal", name, *raw]
        with Started(command) as observer:
            until(lambda: "observer" in threads(observer.pid), "it observes")
            until(lambda: cpu_time(observer.pid) > 20, "it has seen some of it")
            for _ in range(collections):
                subprocess.run(jcmd(jvm.pid, "GC.run"), check=True, capture_output=True, timeout=60)
            told = report(observer.stop(signal.SIGINT))
        value = observe("--signal", f"hsperf:{jvm.pid}:sun.os.hrt.frequency")
    assert value.code == 2 and "--tag hsperf" in value.err
    assert told["rates"][0]["all_per_second"] > 0
    with duckdb.connect() as engine:
        seen = engine.read_parquet(str(folder / "raw" / "*.parquet"))
        column = f'"{name}"'
        ((grown, samples),) = seen.aggregate(f"max({column}) - min({column}), count(*)").fetchall()
    assert (grown, samples) == (collections, told["samples"])


def test_what_does_not_exist_is_named_with_what_does(observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    for name, said in [
        (f"channel:{pid}:round", "is it rounds?"),
        (f"mem:{pid}:paced_round", "is it paced_rounds"),
        (f"chanel:{pid}:rounds", "is it channel?"),
        (f"channel:{os.getpid()}:rounds", "TS_CHANNEL"),
        (f"hsperf:{pid}:x", "it is no JVM"),
        (f"mem:{pid}:paced_rounds+64", "nothing of it is 64 bytes in"),
        ("channel:999999999:rounds", "there is no process"),
        (f"channel:{pid}:phase", f"--tag channel:{pid}:phase"),
    ]:
        ended = observe("--signal", name)
        assert ended.code == 2, ended
        assert said in ended.err, ended.err
    assert observe().code == 2
    five = [word for _ in range(5) for word in ("--signal", f"channel:{pid}:rounds")]
    assert "another run" in observe(*five).err


def test_a_cpu_that_cannot_be_the_observers_is_refused(observe: Observe, paced: Callable) -> None:
    counted = ("--signal", f"channel:{paced('--cycles', STEP).pid}:rounds")
    beyond = observe(*counted, "--cpu", 4095)
    assert beyond.code == 2 and "this machine has no CPU 4095" in beyond.err
    taken = observe(*counted, "--cpu", CPUS[0])
    assert taken.code == 2 and f"CPU {CPUS[0]} alone" in taken.err
    bound = ("taskset", "-c", str(CPUS[0]))
    alone = observe(*counted, under=bound)
    assert alone.code == 3 and "a CPU of its own" in alone.err
    outside = observe(*counted, "--cpu", CPUS[1], under=bound)
    assert outside.code == 2 and "not among those" in outside.err


@pytest.mark.parametrize(("how", "said"), [("SIGTERM", "ended"), ("SIGUSR1", "another program")])
def test_a_process_that_goes_ends_the_observation_properly(
    program: Callable[..., Path], how: str, said: str
) -> None:
    with Started([program("channels.c"), "count"]) as counting:
        until(lambda: has_channels(counting.pid), "it made its channels")
        command = [installed.tailscope(), "observe", "--quiet", "--json", "--period", "50000"]
        with Started([*command, "--signal", f"channel:{counting.pid}:counted"]) as observer:
            until(lambda: "observer" in threads(observer.pid), "it observes")
            until(lambda: cpu_time(observer.pid) > 20, "it has seen some of it")
            os.kill(counting.pid, getattr(signal, how))
            told = report(observer.wait())
    assert said in told["end"]
    assert told["samples"] > 0 and told["rates"][0]["all_per_second"] > 0


def threads(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    return [task.read_text().strip() for task in tasks]


def cpu_time(pid: int) -> int:
    """Ticks that its threads have run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_ctrl_c_ends_it_with_a_report(paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    with Started([installed.tailscope(), "observe", "--signal", f"channel:{pid}:rounds"]) as it:
        until(lambda: "observer" in threads(it.pid), "it observes")
        until(lambda: cpu_time(it.pid) > 20, "it has seen some of it")
        ended = it.stop(signal.SIGINT).clean()
    assert "(stopped)" in ended.out
    assert "pairs of samples kept" in ended.out


def test_an_observer_that_loses_its_cpu_says_so(observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    busy = ["taskset", "-c", str(CPUS[1]), sys.executable, "-c", "while True: pass"]
    with Started(busy):
        told = report(
            observe(
                *("--signal", f"channel:{pid}:rounds", "--cpu", CPUS[1], "--period", 50_000),
                *("--duration", "1s", "--json", "--no-pauses"),
            )
        )
    if not told["preemption_noticed"]:
        pytest.skip("the kernel has no restartable sequences")
    assert told["preempted"] > 0
    # And what is told is still right: the pairs across are dropped.
    assert 0 < told["rates"][0]["per_cycle"] <= 1.01 / STEP


def test_the_self_test_measures_what_a_sample_takes(observe: Observe) -> None:
    told = report(observe("--self-test", "--json"))
    for cost in (told["quiet"], told["contended"]):
        assert 0 < cost["load"] < cost["floor"] < cost["analysed"]
        assert cost["load"] < cost["clocked"]
    assert told["quiet"]["clocked"] < told["quiet"]["analysed"]
    # Who writes meanwhile makes each of these another one, by more than what telling a rate takes.
    assert told["contended"]["clocked"] < 1.1 * told["contended"]["analysed"]
    match told["counters"]:
        case {"counted": counted}:
            assert counted["instructions"] == pytest.approx(counted["executed"], rel=0.001)
        case {"none": {"why": why}}:
            assert "counter" in why


def test_channels_of_a_program_in_rust_are_read(observe: Observe) -> None:
    program = installed.ROOT / "target" / "release" / "examples" / "counting"
    with Started(["taskset", "-c", str(CPUS[0]), program, 60]) as counting:
        until(lambda: has_channels(counting.pid), "it made its channels")
        pid = counting.pid
        told = report(
            observe(
                *("--signal", f"channel:{pid}:doubled", "--signal", f"channel:{pid}:stepped"),
                *("--tag", f"channel:{pid}:phase", "--period", 20_000, "--duration", "1s"),
                "--json",
            )
        )
    doubled, stepped = (rate["all_per_second"] for rate in told["rates"])
    # A step in 100 µs, or later where others have its CPU.
    assert 0 < stepped <= 1.01 * 10_000
    assert doubled == pytest.approx(2 * stepped, rel=0.01)
    assert {tuple(v["tags"]) for v in told["by_tag"]["values"]} == {(0,), (1,)}


def test_another_users_process_is_not_read(paced: Callable) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    pid = paced("--cycles", STEP).pid
    done = subprocess.run(
        [*NOBODY, installed.tailscope(), "observe", "--signal", f"channel:{pid}:rounds"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert "CAP_SYS_PTRACE" in done.stderr


def test_who_runs_on_a_cpu_is_a_tag(recordable: None, observe: Observe, paced: Callable) -> None:
    pid = paced("--cycles", STEP).pid
    told = report(
        observe(
            *("--signal", f"channel:{pid}:rounds", "--tag", f"running:{CPUS[0]}"),
            *("--period", 5 * STEP, "--duration", "1s", "--json"),
        )
    )
    values = told["by_tag"]["values"]
    ours = [v for v in values if f"paced {pid}/{pid}" in (v["names"] or [])]
    assert len(ours) == 1
    assert 0 < ours[0]["per_second"][0] / told["clock_hz"] <= 1.01 / STEP


def test_a_threads_meter_is_a_counter(recordable: None, observe: Observe) -> None:
    sleeper = "import time\nwhile True: time.sleep(0.002)"
    with Started([sys.executable, "-c", sleeper]) as program:
        told = report(
            observe(
                *("--signal", f"meter:{program.pid}:sleep", "--period", 100_000),
                *("--duration", "1s", "--json", "--no-pauses"),
            )
        )
        wrong = observe("--signal", f"meter:{program.pid}:slep")
        queue = observe("--signal", f"meter:{program.pid}:queue")
    # It does nothing but sleep: nearly all its time is charged to that, and never more.
    assert 0.5e9 < told["rates"][0]["all_per_second"] < 1.05e9
    assert wrong.code == 2 and "is it sleep?" in wrong.err
    assert queue.code == 2 and "not metered by the kernel" in queue.err


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


#: The lines of the loop in `long_one`: a turn is of its head or of its body.
HOT = (installed.ROOT / "tests" / "c" / "hot.c").read_text().splitlines()
HEAD = 1 + HOT.index("	for (unsigned long i = 0; i < 3 * times; i++)")
LOOP = {HEAD, HEAD + 1}


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
        with Started([program, "--seconds", 60, "--cpu", CPUS[0]]) as running:
            until(lambda: has_channels(running.pid), "it counts")
            signal_ = f"mem:{running.pid}:paced_rounds"
            options = ("--period", 100_000, "--duration", "200ms", "--json")
            found = report(observe("--signal", signal_, *options))
            debug.unlink()
            missing = observe("--signal", signal_, *options)
    finally:
        debug.unlink(missing_ok=True)
        for one in made:
            one.rmdir()
    assert found["rates"][0]["per_second"] > 0
    assert missing.code == 2 and "paced_rounds" in missing.err, missing


def test_raw_samples_say_the_same_as_the_report(
    observe: Observe, paced: Callable, folder: Path
) -> None:
    pid = paced("--cycles", STEP, "--phases", 2).pid
    names = [f"channel:{pid}:rounds", f"channel:{pid}:phase"]
    told = report(
        observe(
            *("--signal", names[0], "--tag", names[1], "--period", 5 * STEP),
            *("--duration", "1s", "--json", "--output", folder / "raw"),
            *("--html", folder / "seen.html"),
        )
    )
    page = (folder / "seen.html").read_text()
    assert f'aria-label="Distribution of the rate of {names[0]}"' in page
    # A bar for each of both phases, drawn for a desk and for a phone.
    assert page.count('<rect class="f-ink"') == 2 * 2
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    raw = told["raw"]
    assert (raw["samples"], raw["lost"], raw["error"]) == (told["samples"], 0, None)
    with duckdb.connect() as engine:
        rows = engine.read_parquet(str(folder / "raw" / "*.parquet"))
        assert rows.columns == ["cycles", "took", "mark", *names]
        rows.order("cycles").create_view("samples")
        rounds = f'"{names[0]}"'
        # Pairs as docs/observe.md has them, counted by another program.
        kept, grown = engine.execute(
            f"""
            SELECT count(*), sum(grown) FROM (
                SELECT mark, cycles - lag(cycles) OVER w AS first,
                       cycles + took - lag(cycles + took) OVER w AS second,
                       {rounds} - lag({rounds}) OVER w AS grown
                FROM samples WINDOW w AS (ORDER BY cycles)
            ) WHERE mark = 0 AND first > 0
                AND abs(second - first) <= greatest(first * 10486 // 1048576, {told["clock_step"]})
            """
        ).fetchone()
    assert kept == told["kept"]
    assert sum(cell[1] for cell in told["rates"][0]["cells"]) == kept
    per_second = told["rates"][0]["per_second"]
    assert grown / told["rates"][0]["per_cycle"] > 0 and per_second > 0
    again = observe("--signal", names[0], "--output", folder / "raw")
    assert again.code == 2 and "exists" in again.err


def test_a_full_disk_ends_the_raw_samples_and_not_the_report(
    observe: Observe, paced: Callable, folder: Path
) -> None:
    small = folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small disk asks for the right to mount")
    try:
        pid = paced("--cycles", STEP).pid
        ended = observe(
            *("--signal", f"channel:{pid}:rounds", "--period", STEP, "--duration", "2s"),
            *("--json", "--output", small / "raw"),
        )
    finally:
        subprocess.run(["umount", str(small)], check=True, timeout=30)
    told = json.loads(ended.out)
    assert ended.code == 3 and "raw samples are missing" in ended.err
    assert told["raw"]["lost"] == told["samples"] - told["raw"]["samples"] > 0
    assert "no space left" in told["raw"]["error"]
    assert told["rates"][0]["per_cycle"] > 0
