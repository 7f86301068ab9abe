"""The recorder on other kernels: what it says it can, what it counts, and what it leaves behind.

The guests are emulated, so nothing here is about time: counts are exact, and books balance.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
from guest.session import Session
from recording import PATIENCE_MS, Record
from rig import ledger

Ladder = dict[str, dict[str, Any]]

#: The rungs that kernels take, by a word of each. arm64 has no trampolines for BPF programs before
#: Linux 6.4, so none of fentry; the tracepoints of sockets came with Linux 6.3,
#: uprobes attached many at a time with Linux 6.6.
FAULT_RUNG = {"arm64-6.1": "kprobe"}
SOCKETS_RUNG = {"6.1": "fexit", "arm64-6.1": None}
UPROBE_RUNG = dict.fromkeys(("6.1", "arm64-6.1"), "uprobe perf events")
SPANS = 5000
KEYS, CONNECTIONS = 100, 2
#: Shell that starts a server without annotation and waits until it listens: on port 11300, which
#: is 2C24 where the kernel lists sockets, in state 0A.
SERVER = """if type memcached >where; then set -- memcached -u nobody -U 0 -t 1 -p 11300
else set -- kvserver --bare --port 11300; fi
"$@" >where & server=$!
until grep -q ':2C24 00000000:0000 0A' /proc/net/tcp
do kill -0 $server || exit 9; usleep 20000; done"""


def test_what_every_kernel_has_is_measured(guest: Session, ladder: Ladder) -> None:
    for cause in ("runqueue", "throttled", "blocked", "lock", "irq", "softirq", "fault"):
        assert ladder[cause]["rung"], ladder
    assert ladder["lock"]["rung"] == "system call, contention_begin"
    assert FAULT_RUNG.get(guest.kernel.name, "fentry") in ladder["fault"]["rung"], ladder
    sockets = SOCKETS_RUNG.get(guest.kernel.name, "sock_recv_length")
    assert (sockets or "") in (ladder["sockets"]["rung"] or ""), ladder


def test_every_span_of_the_sdk_is_a_row(record: Record) -> None:
    recording = record("--span", "sdk", "--", "loopbench", "--spans", SPANS)
    ledger.check_books(recording.ledger)
    assert recording.said["spans"] == SPANS
    assert ledger.count(recording.ledger) == recording.about["seen"] == SPANS
    assert not recording.lost
    assert ledger.query(recording.ledger, "SELECT sum(irq_n) > 0 FROM spans") == [(True,)]


def test_threads_that_come_and_go_lose_no_row(record: Record) -> None:
    recording = record("--span", "sdk", "--", "threadstorm", "--threads", 200, "--spans", 5)
    ledger.check_books(recording.ledger)
    assert ledger.count(recording.ledger) == 200 * 5
    assert not recording.lost


@pytest.mark.parametrize(
    ("program", "planted", "cause"),
    [
        ("lockbench", "--spans 150 --every 10 --hold-us 50000", "lock"),
        ("sleepbench", "--spans 300 --every 10 --nap-us 100000", "sleep"),
    ],
    ids=["lock", "sleep"],
)
def test_a_planted_block_is_found(record: Record, program: str, planted: str, cause: str) -> None:
    """So long that the thread is off the CPU before it is over, however slow the emulation."""
    recording = record("--span", "sdk", "--", program, planted, "--seconds", 60)
    ledger.check_books(recording.ledger)
    said = recording.said
    assert ledger.count(recording.ledger) == said["spans"]
    assert ledger.count(recording.ledger, f"{cause}_n > 0") >= said["planted"]["spans"] > 0
    explanation = ledger.explain(recording.ledger)
    assert explanation["causes"][0]["name"] == cause, ledger.ranking(explanation)


def test_stacks_of_waits_are_taken(record: Record) -> None:
    planted = "--spans 100 --every 10 --nap-us 100000 --seconds 60"
    recording = record("--span", "sdk", "--stacks", "--", "sleepbench", planted)
    waits = f"read_parquet('{recording.ledger}/_stacks/samples-*.pq') WHERE cause = 'sleep'"
    with duckdb.connect() as engine:
        found = engine.execute(f"SELECT count(DISTINCT row) FROM {waits}").fetchone()
    assert found and found[0] >= recording.said["planted"]["spans"] > 0
    assert not recording.lost


def test_every_page_fault_is_counted(record: Record) -> None:
    planted = ["--spans", 500, "--every", 10, "--pages", 64, "--seconds", 60]
    recording = record("--span", "sdk", "--", "faultbench", *planted)
    ledger.check_books(recording.ledger)
    said = recording.said
    assert ledger.count(recording.ledger) == said["spans"]
    assert ledger.count(recording.ledger, "fault_n >= 64") == said["planted"]["spans"] > 0


def test_every_call_of_a_function_is_a_row(record: Record, guest: Session, ladder: Ladder) -> None:
    unmodified = ["loopbench", "--bare", "--spans", 2000]
    recording = record("--span", "uprobe:loopbench:work", "--", *unmodified)
    ledger.check_books(recording.ledger)
    assert ledger.count(recording.ledger) == recording.said["spans"] == 2000
    assert not recording.lost
    rung = recording.about["ladder"]["uprobe"]["rung"]
    assert rung == UPROBE_RUNG.get(guest.kernel.name, "uprobe_multi")


def test_a_quota_is_counted_as_throttling(record: Record) -> None:
    quota = ["tailscope-lab", "quota", "--quota-us", 20000, "--period-us", 100000, "--"]
    recording = record("--span", "sdk", "--", *quota, "loopbench", "--seconds", 3)
    ledger.check_books(recording.ledger)
    ((throttled_ns, throttled_n),) = ledger.query(
        recording.ledger, "SELECT sum(throttled_ns), sum(throttled_n) FROM spans"
    )
    assert throttled_n > 0
    assert throttled_ns > 0


#: With all that their programs can do, so that the verifier sees all of them.
FOLLOWED = "request --traceparent --tls-names"


@pytest.mark.parametrize("source", ["syscall:recv..send", FOLLOWED], ids=["socket", "followed"])
def test_requests_of_a_server_are_rows_or_refused_with_the_reason(
    source: str, record: Record, guest: Session, ladder: Ladder
) -> None:
    if not ladder["sockets"]["rung"]:
        refused = guest.shell(
            f"{SERVER}\ntailscope record -o refused -p $server -d 1s --span {source}"
        )
        assert refused.code == 3, refused
        assert "sock_recv_length" in refused.err
        return
    load = f"--closed-loop -c {CONNECTIONS} --warmup 0s -d 2s --keys {KEYS} --json"
    client = f"tailscope-lab load --memcached 127.0.0.1:11300 {load}"
    recording = record.server(SERVER, source, client)
    ledger.check_books(recording.ledger)
    assert not recording.lost
    # Answers that came as the load ended, and the sets that fill the keys before it, are more.
    more = ledger.count(recording.ledger) - recording.said["count"]
    assert 0 < more <= KEYS + CONNECTIONS
    assert recording.said["count"] > 100
    if source == FOLLOWED:
        named = ledger.count_by_span(recording.ledger)
        assert set(named) == {"get", "set"}, named


def test_a_timeline_has_every_span_of_the_sdk(guest: Session) -> None:
    """So the verifier takes its programs too, whatever tracepoints there are."""
    script = f"""
export TAILSCOPE_PATIENCE_MS={PATIENCE_MS}
rm -rf /tmp/windows
tailscope timeline -o /tmp/windows --span sdk --keep 600s --memory 32MB -- \
    loopbench --spans {SPANS} || exit $?
tailscope timeline story /tmp/windows/end-0001.timeline --json --slower 0.001us -n {2 * SPANS} \
    >/share/told
"""
    said = json.loads(guest.shell(script, 120).clean().out.splitlines()[-1])
    told = json.loads((guest.share / "told").read_text())
    assert said["spans"] == told["requests"] == len(told["stories"]) == SPANS
    assert {story["span"] for story in told["stories"]} == {"loop"}


def test_nothing_is_left_after_kill_9(guest: Session) -> None:
    if guest.run("which", "bpftool").code != 0:
        pytest.skip(f"there is no bpftool of {guest.kernel.architecture} here")
    script = """
rm -f said # of a test before: it would be read until the recorder's own is there
bpftool -j prog list >before
tailscope record -o /tmp/killed --span sdk -- loopbench --seconds 60 2>said & recorder=$!
until grep -qs '^recording' said; do kill -0 $recorder || exit 9; usleep 20000; done
bpftool -j prog list >during
kill -9 $recorder
wait $recorder
for try in $(seq 100); do
    bpftool -j prog list >after
    cmp -s before after && break
    usleep 100000
done
cp before during after /share
"""
    guest.shell(script, 90).clean()
    before, during, after = (
        {program["id"] for program in json.loads((guest.share / when).read_text())}
        for when in ("before", "during", "after")
    )
    assert before == after
    assert len(during - before) > 10


def test_siblings_share_a_core(guest: Session) -> None:
    if guest.kernel.architecture != "amd64":
        pytest.skip("QEMU makes siblings for x86-64 alone")
    path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"
    assert guest.run("cat", path).clean().out.strip() == "0-1"


def test_hazards_are_seen_by_the_kernels_programs(guest: Session) -> None:
    """A process that is stopped, goes on, and ends, while `guard hazards` watches it."""
    watch = """sleep 600 & pid=$!
rm -f said # of a test before: it would be read until the watcher's own is there
tailscope guard hazards --json -p $pid >said & watcher=$!
until grep -q watch said; do kill -0 $watcher || exit 9; usleep 20000; done
kill -STOP $pid
until grep -q stopped said; do kill -0 $watcher || exit 9; usleep 20000; done
kill -CONT $pid; kill $pid; wait $watcher; cat said"""
    said = guest.shell(watch, 60).clean().out
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert lines[0]["coverage"] == "kernel", said
    edges = [(line["hazard"], line["edge"]) for line in lines[1:]]
    stops = [edge for edge in edges if edge[0] in ("stopped", "gone")]
    assert stops == [("stopped", "begin"), ("stopped", "end"), ("gone", "begin")], said
