"""`tailscope observe` on real programs: rates that are known, and everything that can be wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from rig import installed
from rig.java import java, jcmd
from rig.observer import CPUS, NEEDS_TWO_CPUS, STEP, Observe, has_channels, report
from rig.processes import NOBODY, Started, undisturbed
from rig.waiting import until

pytestmark = NEEDS_TWO_CPUS


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
    assert wrong.code == 3 or (wrong.code == 2 and "did you mean instructions" in wrong.err)


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
            return wrong.code == 2 and "did you mean sun.gc.collector.1.invocations" in wrong.err

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
        (f"channel:{pid}:round", "did you mean rounds?"),
        (f"mem:{pid}:paced_round", "did you mean paced_rounds"),
        (f"chanel:{pid}:rounds", "did you mean channel?"),
        (f"channel:{os.getpid()}:rounds", "TS_CHANNEL"),
        (f"hsperf:{pid}:x", "it is not a JVM"),
        (f"mem:{pid}:paced_rounds+64", "so offset 64 is outside"),
        ("channel:999999999:rounds", "there is no process"),
        (f"channel:{pid}:phase", f"--tag channel:{pid}:phase"),
    ]:
        ended = observe("--signal", name)
        assert ended.code == 2, ended
        assert said in ended.err, ended.err
    assert observe().code == 2
    five = [word for _ in range(5) for word in ("--signal", f"channel:{pid}:rounds")]
    assert "another run" in observe(*five).err


def test_a_program_that_has_just_started_is_waited_for(
    program: Callable[..., Path], folder: Path
) -> None:
    """It is a shell yet when the observer first looks, and then becomes the program."""
    gate = folder / "gate"
    os.mkfifo(gate)
    # A second is little on a busy machine, so both go before all others. Both mostly sleep.
    calm = undisturbed()
    script = ["sh", "-c", 'read go < "$0"; exec "$@"', gate, program("channels.c"), "count"]
    command = [*calm, installed.tailscope(), "observe", "--quiet", "--json", "--no-pauses"]
    command += ["--period", 20_000_000, "--duration", "1s"]
    with Started([*calm, *script]) as counting:
        name = f"channel:{counting.pid}:counted"
        with Started([*command, "--signal", name]) as observer:
            # With each of its tries it sleeps.
            until(
                lambda: not observer.runs or int(observer.status("voluntary_ctxt_switches")) > 3,
                "it looks again",
            )
            gate.write_text("go\n")
            told = report(observer.wait())
    assert told["rates"][0]["all_per_second"] > 0
    assert "another program" not in told["end"]


def test_a_cpu_that_cannot_be_the_observers_is_refused(observe: Observe, paced: Callable) -> None:
    counted = ("--signal", f"channel:{paced('--cycles', STEP).pid}:rounds")
    beyond = observe(*counted, "--cpu", 4095)
    assert beyond.code == 2 and "this machine has no CPU 4095" in beyond.err
    taken = observe(*counted, "--cpu", CPUS[0])
    assert taken.code == 2 and f"only on CPU {CPUS[0]}" in taken.err
    bound = ("taskset", "-c", str(CPUS[0]))
    alone = observe(*counted, under=bound)
    assert alone.code == 3 and "the application needs it" in alone.err
    outside = observe(*counted, "--cpu", CPUS[1], under=bound)
    assert outside.code == 2 and "may not run on CPU" in outside.err


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


def test_a_wait_has_no_rate_by_who_runs(observe: Observe) -> None:
    wrong = observe("--signal", f"meter:{os.getpid()}:sleep", "--tag", f"running:{CPUS[0]}")
    assert wrong.code == 2
    assert "has no rate by running:" in wrong.err and "tailscope explain" in wrong.err


def test_a_threads_meter_is_a_counter(recordable: None, observe: Observe) -> None:
    # It waits for nobody to get its CPU back, whatever else the machine has to do.
    sleeper = "import time\nwhile True: time.sleep(0.02)"
    with Started([*undisturbed(), sys.executable, "-c", sleeper]) as program:
        until(lambda: int(program.status("voluntary_ctxt_switches")) > 10, "it sleeps")
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
    assert wrong.code == 2 and "did you mean sleep?" in wrong.err
    assert queue.code == 2 and "not metered by the kernel" in queue.err
