"""Spans of programs that were never prepared: USDT probes and functions, against known truth."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Record
from rig import installed, ledger
from rig.processes import Ended, Started
from rig.recorder import about
from rig.waiting import until

Run = Callable[..., Started]
Program = Callable[..., Path]
Recorded = Callable[..., Path]

ROUNDS = 1000
#: Of tests/c/probed.c.
THREADS, CROWD, DEPTH, TOO_DEEP = 4, 1200, 5, 40
#: Of crates/kernel/src/bpf/shared.h.
OPEN_SPANS, OPEN_SPANS_SLOTS, MAX_TEXTS = 16, 1024, 1024


@pytest.fixture(scope="session")
def probed(program: Program) -> Path:
    """The program with probes."""
    return program("probed.c")


@pytest.fixture
def recorded(record: Record, probed: Path) -> Recorded:
    """Records a mode of the program, from its first instruction to its end."""

    def to_its_end(what: str, *sources: str, rounds: int = ROUNDS, options: tuple = ()) -> Path:
        spans = [w for s in sources for w in ("--span", s.format(probed))]
        recorder = record(*spans, *options, "--", probed, what, rounds)
        recorder.wait().clean()
        if ledger.count(recorder.ledger):
            ledger.check_books(recorder.ledger)
        return recorder.ledger

    return to_its_end


INNER = "inner=usdt:{}:test:begin(id=arg0)..end"
OUTER = "outer=usdt:{}:test:outer_begin(id=arg0)..outer_end"


def spans_by_name(folder: Path) -> dict[str, int]:
    return dict(ledger.query(folder, "SELECT span, count(*) FROM spans GROUP BY span"))


def lost(folder: Path) -> dict[str, int]:
    """What was lost, without what is only told."""
    told: dict[str, Any] = about(folder)["lost"]
    return {k: n for k, n in told.items() if n and k not in ("switches", "overdrawn")}


#: Pairs of spans with one id that are not one inside the other on one thread.
APART = (
    "SELECT * FROM spans AS o JOIN spans AS i USING (id) WHERE o.span = 'outer' "
    "AND i.span = 'inner' AND NOT (o.tid = i.tid AND i.start_ns >= o.start_ns "
    "AND i.start_ns + i.wall_ns <= o.start_ns + o.wall_ns)"
)


def test_every_span_between_two_probes_is_recorded_with_its_id(recorded: Recorded) -> None:
    folder = recorded("pairs", INNER, OUTER)
    assert spans_by_name(folder) == {"inner": ROUNDS, "outer": ROUNDS}
    for name in ("inner", "outer"):
        ids = f"SELECT count(DISTINCT id), min(id), max(id) FROM spans WHERE span = '{name}'"
        assert ledger.query(folder, ids) == [(ROUNDS, 0, ROUNDS - 1)]
    assert not ledger.query(folder, APART)
    assert not lost(folder)
    assert about(folder)["seen"] == 2 * ROUNDS


def test_spans_of_threads_are_kept_apart(recorded: Recorded) -> None:
    folder = recorded("threads", INNER, OUTER)
    assert spans_by_name(folder) == {"inner": THREADS * ROUNDS, "outer": THREADS * ROUNDS}
    assert not ledger.query(folder, APART)
    found = ledger.query(folder, "SELECT count(DISTINCT tid), count(DISTINCT id) FROM spans")
    assert found == [(THREADS, THREADS * ROUNDS)]


@pytest.mark.parametrize(
    "source",
    ["pair=usdt:{}:test:outer_begin..outer_end", "pair=uprobe:{}:pair"],
    ids=["usdt", "uprobe"],
)
def test_spans_that_ask_for_no_argument_have_none(source: str, recorded: Recorded) -> None:
    folder = recorded("threads", source)
    found = "SELECT tid, count(*), count(id), min(wall_ns) > 150 FROM spans GROUP BY tid"
    assert [row[1:] for row in ledger.query(folder, found)] == [(ROUNDS, 0, True)] * THREADS
    assert not lost(folder)


@pytest.mark.parametrize("source", [INNER, "uprobe:{}:pair(id=arg0)"], ids=["usdt", "uprobe"])
def test_a_thread_beyond_those_whose_open_spans_have_a_slot_has_its_spans(
    source: str, recorded: Recorded
) -> None:
    assert CROWD > OPEN_SPANS_SLOTS
    folder = recorded("crowd", source, rounds=3)
    assert not lost(folder)
    found = ledger.query(folder, "SELECT count(DISTINCT tid), count(*), max(id) FROM spans")
    assert found == [(CROWD, 3 * CROWD, 3 * CROWD - 1)]
    apart = "SELECT count(*) FROM (SELECT tid FROM spans GROUP BY tid, id // 3)"
    assert ledger.query(folder, apart) == [(CROWD,)], "ids of a thread are its own"


def test_a_thread_that_runs_another_program_bears_its_process_s_number(recorded: Recorded) -> None:
    folder = recorded("exec", INNER)
    found = "SELECT count(*), count(DISTINCT tid), min(tid) = min(pid) FROM spans"
    assert ledger.query(folder, found) == [(ROUNDS, 1, True)]


def test_rows_for_which_the_ring_of_their_cpu_has_no_room_are_not_lost(
    record: Record, run: Run, probed: Path, folder: Path
) -> None:
    rounds = 60_000  # three times what the ring of one CPU holds
    gate = folder / "gate"
    os.mkfifo(gate)
    cpu = min(os.sched_getaffinity(0))
    script = f"read go < {gate}; exec taskset -c {cpu} {probed} pairs {rounds}"
    program = run("/bin/sh", "-c", script)
    recorder = record("-p", program.pid, "--span", INNER.format(probed)).ready()
    os.kill(recorder.pid, signal.SIGSTOP)
    try:
        gate.write_text("go\n")
        program.wait().clean()
    finally:
        os.kill(recorder.pid, signal.SIGCONT)
    recorder.wait().clean()
    ledger.check_books(recorder.ledger)
    ids = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM spans"
    assert ledger.query(recorder.ledger, ids) == [(rounds, rounds, 0, rounds - 1)]
    assert not lost(recorder.ledger)


def test_spans_of_two_sources_may_overlap(recorded: Recorded) -> None:
    folder = recorded("crossing", INNER, OUTER)
    assert spans_by_name(folder) == {"inner": ROUNDS, "outer": ROUNDS}
    crossed = (
        "SELECT count(*) FROM spans AS o JOIN spans AS i USING (id) WHERE o.span = 'outer' AND "
        "i.span = 'inner' AND o.start_ns <= i.start_ns "
        "AND o.start_ns + o.wall_ns <= i.start_ns + i.wall_ns"
    )
    assert ledger.query(folder, crossed) == [(ROUNDS,)]


@pytest.mark.parametrize(
    "source",
    ["work=usdt:{}:test:begin(id=arg0)..end", "work=uprobe:{}:descend(id=arg0)"],
    ids=["usdt", "uprobe"],
)
def test_a_recursion_has_a_span_at_each_depth(source: str, recorded: Recorded) -> None:
    folder = recorded("recursion", source)
    by_depth = ledger.query(folder, "SELECT id, count(*) FROM spans GROUP BY id ORDER BY id")
    assert by_depth == [(left, ROUNDS) for left in range(1, DEPTH + 1)]
    grows = (
        "SELECT count(*) FROM (SELECT wall_ns, lag(wall_ns) OVER (ORDER BY start_ns + wall_ns) "
        "AS below, id FROM spans) WHERE id > 1 AND below > wall_ns"
    )
    assert ledger.query(folder, grows) == [(0,)], "a call is longer than the one inside it"
    assert not lost(folder)


@pytest.mark.parametrize("kind", ["usdt:{}:test:begin(id=arg0)..end", "uprobe:{}:descend(id=arg0)"])
def test_a_recursion_too_deep_keeps_its_outermost_spans_and_counts_the_rest(
    kind: str, recorded: Recorded
) -> None:
    folder = recorded("deep", f"work={kind}", rounds=100)
    by_depth = ledger.query(folder, "SELECT id, count(*) FROM spans GROUP BY id ORDER BY id")
    outermost = range(TOO_DEEP - OPEN_SPANS + 1, TOO_DEEP + 1)
    assert by_depth == [(left, 100) for left in outermost]
    assert lost(folder) == {"depth": 100 * (TOO_DEEP - OPEN_SPANS)}


def test_spans_left_by_a_longjmp_harm_no_other(recorded: Recorded) -> None:
    folder = recorded("longjmp", INNER)
    found = ledger.query(folder, "SELECT count(*), count(DISTINCT id), max(id) FROM spans")
    assert found == [(ROUNDS, ROUNDS, ROUNDS - 1)]
    assert lost(folder) == {"abandoned": 3 * ROUNDS}


def test_calls_left_by_a_longjmp_harm_no_other(recorded: Recorded) -> None:
    folder = recorded("longjmp", "uprobe:{}:leave", "uprobe:{}:survivor(id=arg0)")
    assert spans_by_name(folder) == {"survivor": ROUNDS}
    # Those of the last round are never seen to be left.
    assert lost(folder) == {"abandoned": 3 * (ROUNDS - 1)}


def test_a_begin_that_comes_again_takes_the_place_of_the_one_without_an_end(
    recorded: Recorded,
) -> None:
    folder = recorded("errors", INNER)
    failed = ledger.query(folder, "SELECT count(*) FILTER (id % 4 = 3), count(*) FROM spans")
    assert failed == [(0, ROUNDS * 3 // 4)]
    assert lost(folder) == {"abandoned": ROUNDS // 4 - 1}


def test_a_pair_of_functions_makes_spans_and_an_end_too_many_none(recorded: Recorded) -> None:
    folder = recorded("functions", "uprobe:{}:open_it(id=arg0)..close_it")
    assert spans_by_name(folder) == {"open_it..close_it": ROUNDS}
    assert ledger.query(folder, "SELECT count(DISTINCT id) FROM spans") == [(ROUNDS,)]
    assert not lost(folder)


def test_a_string_argument_names_the_spans(recorded: Recorded) -> None:
    folder = recorded("pairs", "usdt:{}:test:begin(name=arg1,id=arg0)..end")
    names = ("red", "green", "blue")
    assert spans_by_name(folder) == {name: len(range(i, ROUNDS, 3)) for i, name in enumerate(names)}
    wrong = "SELECT * FROM spans WHERE span != ['red', 'green', 'blue'][1 + id % 3]"
    assert not ledger.query(folder, wrong)


def test_names_beyond_the_bound_are_counted_and_go_by_one_name(recorded: Recorded) -> None:
    rounds = MAX_TEXTS + 500
    folder = recorded("names", "usdt:{}:test:begin(name=arg1)..end", rounds=rounds)
    names = spans_by_name(folder)
    assert names.pop("(other)") == rounds - (MAX_TEXTS - 1)
    assert names == {f"name-{i}": 1 for i in range(MAX_TEXTS - 1)}
    assert lost(folder) == {"names": rounds - (MAX_TEXTS - 1)}


@pytest.mark.parametrize(("options", "processes"), [((), 1), (("--no-children",), 0)])
def test_children_are_recorded_unless_told_otherwise(
    options: tuple, processes: int, recorded: Recorded
) -> None:
    folder = recorded("forking", INNER, options=options)
    assert ledger.count(folder) == processes * ROUNDS


def test_a_sample_of_spans_has_their_weight(recorded: Recorded) -> None:
    folder = recorded("recursion", INNER, rounds=4000, options=("--sample", "25%"))
    everything = 4000 * DEPTH
    ((rows, weight),) = ledger.query(folder, "SELECT count(*), sum(weight) FROM spans")
    # Binomial: 5,000 give or take six times 61.
    assert abs(rows - everything / 4) < 6 * (everything * 3 / 16) ** 0.5
    assert weight == pytest.approx(rows * 4)


def test_a_running_process_is_found_by_the_bare_name_of_its_program(
    record: Record, run: Run, probed: Path, folder: Path
) -> None:
    program = Path(shutil.copy2(probed, folder / "a-server"))
    busy = run(program, "pairs", ROUNDS, 60)
    recorder = record("-p", busy.pid, "--span", "usdt:a-server:test:begin..end").ready()
    until(lambda: not busy.runs or recorder.sealed(), "rows are sealed", seconds=40)
    recorder.interrupt().clean()
    assert ledger.count(recorder.ledger, f"pid = {busy.pid}") > 1000
    ledger.check_books(recorder.ledger)


def test_other_processes_of_the_same_program_are_not_recorded(
    record: Record, run: Run, probed: Path
) -> None:
    run(probed, "pairs", ROUNDS, 60)
    recorder = record("--span", INNER.format(probed), "--", probed, "pairs", ROUNDS)
    recorder.wait().clean()
    assert ledger.count(recorder.ledger) == ROUNDS


def test_a_program_replaced_while_it_runs_is_recorded_and_that_is_said(
    record: Record, run: Run, probed: Path, folder: Path
) -> None:
    program = Path(shutil.copy2(probed, folder / "server"))
    busy = run(program, "pairs", ROUNDS, 120)
    until(lambda: Path(f"/proc/{busy.pid}/exe").readlink() == program, "it runs")
    shutil.copy2(probed, folder / "new")
    (folder / "new").rename(program)
    recorder = record("-p", busy.pid, "--span", f"usdt:{program}:test:begin..end", "-d", "2s")
    ended = recorder.wait().clean()
    assert f"{program} was replaced after a process started from it" in ended.err
    assert ledger.count(recorder.ledger) > 1000


def test_a_program_replaced_while_it_is_recorded_is_told_of(
    record: Record, run: Run, probed: Path, folder: Path
) -> None:
    program = Path(shutil.copy2(probed, folder / "server"))
    busy = run(program, "pairs", ROUNDS, 120)
    recorder = record("-p", busy.pid, "--span", f"usdt:{program}:test:begin..end").ready()
    shutil.copy2(probed, folder / "new")
    (folder / "new").rename(program)
    until(lambda: f"{program} was replaced" in recorder.err, "it is told")
    recorder.interrupt().clean()
    assert ledger.count(recorder.ledger) > 0


def test_a_process_in_another_mount_namespace_is_probed_where_its_file_is(
    record: Record, run: Run, probed: Path, folder: Path
) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces need root, and unshare")
    hidden = folder / "hidden"
    hidden.mkdir()
    script = (
        f"mount -t tmpfs none {hidden} && cp {probed} {hidden}/inside && "
        f"exec {hidden}/inside pairs {ROUNDS} 60"
    )
    busy = run(Path(shutil.which("unshare") or "unshare"), "-m", "sh", "-c", script)
    until(lambda: Path(f"/proc/{busy.pid}/exe").readlink().name == "inside", "it runs")
    assert not (hidden / "inside").exists()
    source = f"usdt:{hidden}/inside:test:begin..end"
    recorder = record("-p", busy.pid, "--span", source, "-d", "2s")
    recorder.wait().clean()
    assert ledger.count(recorder.ledger, f"pid = {busy.pid}") > 1000


@pytest.mark.parametrize("source", ["usdt:{}:test:begin..end", "uprobe:{}:pair"])
def test_a_process_in_a_container_is_probed_by_the_path_that_it_knows(
    source: str, record: Record, run: Run, program: Program, folder: Path
) -> None:
    """A root, mounts, processes and a network of its own; there it is process 1."""
    apart = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")
    if os.geteuid() or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("namespaces need root, and unshare")
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy2(program("probed.c", "-static"), root / "bin" / "inside")
    unshare, *options = apart
    container = run(
        Path(shutil.which(unshare) or unshare),
        *(*options, "--root", root, "/bin/inside", "pairs", ROUNDS, 60),
    )
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    inside = int(until(lambda: children.read_text().strip(), "its process runs"))
    until(lambda: Path(f"/proc/{inside}/exe").readlink().name == "inside", "it is the program")
    assert not Path("/bin/inside").exists()
    recorder = record("-p", inside, "--span", source.format("/bin/inside"), "-d", "2s")
    recorder.wait().clean()
    container.stop(signal.SIGKILL)  # unshare ignores SIGTERM
    assert ledger.count(recorder.ledger, f"pid = {inside} AND tid = {inside}") > 1000
    assert ledger.count(recorder.ledger, f"pid <> {inside}") == 0
    ledger.check_books(recorder.ledger)


WRONG = [
    ("usdt:{}:test:begn..end", "no probe 'test:begn'", "begin"),
    ("usdt:{}:tset:begin..end", "no provider 'tset'", "test"),
    ("usdt:/bin/true:test:begin..end", "no USDT probes", "uprobe:"),
    ("uprobe:{}:survivr", "no function 'survivr'", "survivor"),
    ("uprobe:/no/such/file:work", "can't open /no/such/file", ""),
    ("uprobe:no-such-program:work", "no-such-program", "give its path"),
    ("uprobe:/etc/passwd:work", "no 64-bit ELF", ""),
    ("usdt:{}:test:begin", "no '..'", "usdt:PATH:PROVIDER:BEGIN..END"),
    ("uprobe:{}:descend(id=arg9)", "N from 0 to 5", "uprobe:PATH"),
]


@pytest.mark.parametrize(("source", "said", "remedy"), WRONG)
def test_a_probe_that_is_not_there_is_wrong_usage_and_the_nearest_are_named(
    source: str, said: str, remedy: str, record: Record, probed: Path
) -> None:
    ended: Ended = record("--span", source.format(probed), "--", probed, "pairs", 1).wait()
    assert ended.code == 2, ended
    assert said in ended.err and remedy in ended.err
    assert "panicked" not in ended.err


def test_probes_are_gone_when_a_recorder_is_killed(
    record: Record, run: Run, probed: Path, nothing_left: None
) -> None:
    busy = run(probed, "pairs", ROUNDS, 60)
    recorder = record("-p", busy.pid, "--span", INNER.format(probed)).ready()
    recorder.kill()
    assert busy.runs


def test_doctor_says_whether_programs_can_be_probed(recordable: None) -> None:
    done = subprocess.run(
        [installed.tailscope(), "doctor"], capture_output=True, text=True, timeout=60
    )
    assert "usdt:" in done.stdout and "uprobe:" in done.stdout, done
