"""The agent: weeks of recording, here in seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from proof.ports import answers
from rig import bpf, installed, ledger
from rig.agent import LOOPBENCH, Agent, configuration
from rig.processes import Started, held
from rig.recorder import about
from rig.servers import load, memcached
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]


def check(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [installed.tailscope(), "agent", "--check", config],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_configuration_is_checked_with_its_line(folder: Path) -> None:
    config = configuration(folder, 'name = "x"')
    assert check(config).returncode == 0
    config.write_text(config.read_text() + "[record2]\n")
    done = check(config)
    assert done.returncode == 2
    last = len(config.read_text().splitlines())
    assert f"{config}:{last}:" in done.stderr and "record2" in done.stderr, done
    done = check(folder / "none.toml")
    assert done.returncode == 2 and "none.toml" in done.stderr, done


def test_ledgers_follow_each_other_without_a_gap(agent: Start, run: Run) -> None:
    started = agent(LOOPBENCH, ledger='rotate_age = "1s"')
    # It starts after the agent, which hears of it before its first span.
    bench = run("loopbench", "--seconds", 600, "--threads", 2)
    until(lambda: len(started.ledgers()) >= 4, "three ledgers have followed the first")
    said = bench.stop().clean().json()
    until(lambda: started.figures()["tailscope_processes"] == 0, "its end is heard")
    seen = started.figures()["tailscope_spans_total"]
    assert said["spans"] / 2 < seen <= said["spans"]
    assert started.lost() == {}
    started.stop().clean()
    ledgers = started.ledgers()
    assert len(ledgers) >= 4
    assert all(about(one)["state"] == "done" for one in ledgers)
    assert sum(about(one)["seen"] for one in ledgers) == seen == started.rows()
    assert sum(ledger.count(one) for one in ledgers) == seen
    assert all(about(one)["seen"] == about(one)["rows"] for one in ledgers)
    full = max(ledgers, key=lambda one: about(one)["rows"])
    assert ledger.explain(full)["rows"] == about(full)["rows"]


def test_a_ledger_that_is_begun_when_it_ends_is_sealed_too(agent: Start) -> None:
    started = agent(LOOPBENCH, ledger='rotate_age = "1s"')
    tasks = Path(f"/proc/{started.pid}/task")
    worker = next(t for t in tasks.iterdir() if (t / "comm").read_text() == "agent-ledgers\n")
    before, port = len(started.ledgers()), int(re.findall(r"at http://[^:]+:(\d+)", started.err)[0])
    with held(int(worker.name)):
        # After a second the next ledger is wanted, which the agent sees at its next turn.
        begun, turns = time.monotonic(), lambda: int(started.status("voluntary_ctxt_switches"))
        until(lambda: time.monotonic() > begun + 1, "the ledger is as old as it may become")
        last = turns()
        until(lambda: turns() > last + 5, "the agent has looked at it")
        os.kill(started.pid, signal.SIGTERM)
        until(lambda: not answers(port), "it is about to end")
    started.wait().clean()
    ledgers = started.ledgers()
    assert len(ledgers) > before, "it was not about to turn"
    assert [about(one)["state"] for one in ledgers] == ["done"] * len(ledgers)


def test_the_quota_removes_the_oldest_and_nothing_else(
    agent: Start, run: Run, folder: Path
) -> None:
    mine = folder / "ledgers" / "2020-01-01T000000Z-000001"
    mine.mkdir(parents=True)
    (mine / "ledger.json").write_text("{}")
    started = agent(LOOPBENCH, ledger='rotate_size = "1MB"\nquota = "2MB"\nrotate_age = "1s"')
    run("loopbench", "--seconds", 600, "--threads", 2, "--iterations", 2000)
    until(
        lambda: started.figures()["tailscope_ledgers_removed_total"] >= 3,
        "the quota is used up",
        60,
    )
    started.stop().clean()
    sizes = [
        file.stat().st_size
        for one in started.ledgers()
        for file in one.rglob("*")
        if file.is_file()
    ]
    # What is written while the oldest is removed is over it for a moment: one ledger's files.
    assert sum(sizes) < 8e6, sizes
    assert (mine / "ledger.json").exists()
    assert not list(started.folder.glob("*-000002"))


def test_figures_are_prometheus_own(agent: Start) -> None:
    with memcached(0) as server:
        started = agent(f"pid = {server.pid}", record='spans = ["syscall:ready..send"]')
        assert started.figures()["tailscope_processes"] == 1
        with load(server, "--rate", 500, "-d", "3s", "--warmup", "0s") as asking:
            asking.wait().clean()
        figures = started.figures()
        span = "{span=ready..send}"
        name = "tailscope_span_duration_seconds"
        assert figures["tailscope_rows_total"] == figures[f"{name}_count{span}"] > 1000
        p50, p99 = (figures[f"{name}{span}{{quantile={q}}}"] for q in ("0.5", "0.99"))
        assert 0 < p50 <= p99 < 10
        assert figures["process_cpu_seconds_total"] > 0
        assert figures["process_resident_memory_bytes"] > 1e6
        until(
            lambda: started.figures()["tailscope_written_bytes_total"] > 0, "a file is sealed", 30
        )


def of_process(figures: dict[str, float], **labels: object) -> float | None:
    """How many spans a series by process has counted."""
    name = "tailscope_process_span_duration_seconds_count"
    return figures.get(name + "".join(f"{{{key}={value}}}" for key, value in labels.items()))


def test_two_servers_of_one_name_have_series_of_their_own(agent: Start, folder: Path) -> None:
    with memcached(0) as one, memcached(0) as other:
        rules = (f"pid = {one.pid}", f"pid = {other.pid}")
        started = agent(*rules, record='spans = ["syscall:ready..send"]')
        for server, rate in (one, 300), (other, 600):
            with load(server, "--rate", rate, "-d", "1s", "--warmup", "0s") as asking:
                asking.wait().clean()
        figures = started.figures()
        whole = figures["tailscope_span_duration_seconds_count{span=ready..send}"]
        counts = [
            of_process(figures, process="memcached", port=server.port, span="ready..send")
            for server in (one, other)
        ]
        assert all(count and count > 100 for count in counts), figures
        assert sum(filter(None, counts)) == whole
        # A reload may ask for the numbers of processes: then series begin anew.
        config = folder / "agent.toml"
        config.write_text(config.read_text().replace("[metrics]", "[metrics]\npid = true"))
        started.reload()
        with load(other, "--rate", 300, "-d", "1s", "--warmup", "0s") as asking:
            asking.wait().clean()
        labels = {"process": "memcached", "port": other.port, "pid": other.pid}
        assert of_process(started.figures(), **labels, span="ready..send")


def test_a_silent_scraper_holds_up_nobody(agent: Start) -> None:
    started = agent('name = "nobody-at-all"')
    port = int(started.err.rsplit("127.0.0.1:", 1)[1].split("/")[0])
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert started.figures()["tailscope_processes"] == 0


def test_a_wrong_configuration_is_refused_and_the_old_goes_on(
    agent: Start, run: Run, folder: Path
) -> None:
    started = agent(LOOPBENCH)
    bench = run("loopbench", "--seconds", 600, "--think-us", 100)
    until(lambda: started.figures()["tailscope_rows_total"] > 100, "it is recorded")
    config = folder / "agent.toml"
    good = config.read_text()
    config.write_text(good + "[colours]\n")
    started.reload()
    assert (
        "unknown field `colours`" in started.err
        and "the old configuration stays in use" in started.err
    )
    figures = started.figures()
    assert figures["tailscope_config_last_reload_successful"] == 0
    rows = figures["tailscope_rows_total"]
    until(lambda: started.figures()["tailscope_rows_total"] > rows, "it goes on")
    # A right one: another folder, another process besides.
    config.write_text(good.replace("/ledgers", "/others") + '[[process]]\nname = "sleepbench"\n')
    started.reload()
    figures = started.figures()
    assert figures["tailscope_config_last_reload_successful"] == 1, started.err
    others = folder / "others"
    until(lambda: list(others.glob("*/ledger.json")), "the next ledger lies in the other folder")
    run("sleepbench", "--spans", 1000).wait().clean()
    said = bench.stop().clean().json()
    until(lambda: started.figures()["tailscope_processes"] == 0, "their ends are heard")
    seen = started.figures()["tailscope_spans_total"]
    assert said["spans"] / 2 < seen <= said["spans"] + 1000
    started.stop().clean()
    rows = sum(about(path.parent)["rows"] for path in others.glob("*/ledger.json"))
    assert started.rows() + rows == seen
    assert (
        "reload" in " ".join(key for key, n in figures.items() if n) or len(started.ledgers()) == 1
    )


def test_other_spans_take_other_programs(agent: Start, folder: Path) -> None:
    with memcached(0) as server:
        started = agent('name = "memcached"', record='spans = ["sdk"]')
        config = folder / "agent.toml"
        config.write_text(config.read_text().replace("sdk", "syscall:ready..send"))
        held = set(bpf.held_by(started.pid))
        started.reload()
        assert "with new kernel programs" in started.err
        with load(server, "--rate", 500, "-d", "1s", "--warmup", "0s") as asking:
            asking.wait().clean()
        until(lambda: started.figures()["tailscope_rows_total"] > 300, "requests are recorded")
        assert not held & set(bpf.held_by(started.pid)), "the old programs are gone"
        started.stop().clean()
        assert len(started.ledgers()) == 2


def test_one_that_is_killed_leaves_nothing_and_the_next_goes_on(
    agent: Start, run: Run, nothing_left: None, folder: Path
) -> None:
    started = agent(LOOPBENCH)
    bench = run("loopbench", "--seconds", 600, "--think-us", 20)
    until(lambda: started.figures()["tailscope_rows_total"] > 100, "it is recorded")
    started.stop(signal.SIGKILL)
    again = Agent(folder, folder / "agent.toml")
    with again:
        until(lambda: again.figures()["tailscope_rows_total"] > 100, "it is recorded again")
        again.stop().clean()
    first, second = again.ledgers()
    assert about(first)["state"] == "recording"
    assert about(second)["state"] == "done"
    assert bench.stop().clean()


def test_four_capabilities_are_enough(agent: Start, run: Run) -> None:
    capabilities = "-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search"
    under = ("setpriv", f"--bounding-set={capabilities}", "--no-new-privs")
    started = agent(LOOPBENCH, under=under, ledger='rotate_age = "1s"')
    assert int(started.status("CapEff"), 16).bit_count() == 4
    run("loopbench", "--seconds", 3, "--think-us", 100).wait().clean()
    until(lambda: started.figures()["tailscope_processes"] == 0, "its end is heard")
    seen = started.figures()["tailscope_spans_total"]
    started.stop().clean()
    assert started.rows() == seen > 1000


def test_two_agents_share_no_folder(agent: Start, folder: Path) -> None:
    agent(LOOPBENCH)
    second = Started([installed.tailscope(), "agent", folder / "agent.toml"])
    with second:
        ended = second.wait()
    assert ended.code == 3 and "another agent" in ended.err, ended


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = configuration(folder, 'name = "x"', metrics=f'listen = "127.0.0.1:{port}"')
        with Started([installed.tailscope(), "agent", config]) as started:
            ended = started.wait()
    assert ended.code == 3 and f"127.0.0.1:{port}" in ended.err, json.dumps(ended.err)


def test_metrics_are_served_at_a_socket_that_systemd_passes(folder: Path) -> None:
    config = configuration(folder, 'name = "x"')
    with socket.socket() as passed:
        passed.bind(("127.0.0.1", 0))
        passed.listen()
        port, fd = passed.getsockname()[1], passed.fileno()
        activate = ["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{fd}', "bash"]
        command = [*activate, installed.tailscope(), "agent", config]
        with Started(command, pass_fds=(fd,)) as started:
            until(lambda: "has no effect" in started.err or not started.runs, "it is ready")
            assert f"metrics at http://127.0.0.1:{port}/metrics" in started.err, started.err
            assert 'listen = "127.0.0.1:0" has no effect' in started.err

            def answered() -> bool:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as said:
                    return b"tailscope_processes 0" in said.read()

            assert answered()
            os.kill(started.pid, signal.SIGHUP)
            until(lambda: "reloaded" in started.err, "the configuration was read again")
            assert answered()
            started.stop().clean()
