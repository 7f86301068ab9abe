"""The SDK through the lives of programs and recorders: who comes first, goes, comes again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Record
from rig import installed, ledger
from rig.processes import AS_NOBODY, Started, undisturbed
from rig.recorder import about, regions
from rig.servers import kvserver, load
from rig.waiting import until

Run = Callable[..., Started]
Program = Callable[..., Path]

#: Of a large server; a user may have 64 processes at once.
WORKERS = 48


def test_a_program_that_started_before_the_recorder_is_recorded(record: Record, run: Run) -> None:
    loop = run("loopbench", "--seconds", 600)
    recorder = record("-p", loop.pid, "--span", "sdk").ready()
    recorder.serves(loop)
    recorder.interrupt().clean()
    assert ledger.count(recorder.ledger, f"span = 'loop' AND pid = {loop.pid}") > 100
    ledger.check_books(recorder.ledger)
    assert loop.stop().code == 0


@pytest.mark.parametrize(
    ("options", "recorded"),
    [((), "sdk"), (("--span", "uprobe:sleepbench:work"), "uprobe:sleepbench:work")],
    ids=["sdk", "uprobe"],
)
def test_a_program_that_has_just_started_is_waited_for(
    options: tuple, recorded: str, record: Record, folder: Path
) -> None:
    """It is a shell yet when the recorder first looks, and then becomes the program."""
    gate = folder / "gate"
    os.mkfifo(gate)
    naps = [installed.LAB / "sleepbench", "--every", 1, "--nap-us", 1000, "--seconds", 600]
    # A second is little on a busy machine, so both go before all others. Both mostly sleep.
    script = [*undisturbed(), "sh", "-c", 'read go < "$0"; exec "$@"', gate, *naps]
    with Started(script) as program:
        recorder = record("-p", program.pid, *options, under=undisturbed())
        # With each of its looks it sleeps.
        until(
            lambda: not recorder.runs or int(recorder.status("voluntary_ctxt_switches")) > 3,
            "it looks again",
        )
        gate.write_text("go\n")
        recorder.ready()
        program.works(5e6)
        assert f"recording {recorded}" in recorder.interrupt().clean().err
    assert ledger.count(recorder.ledger) > 0


def test_a_program_that_the_recorder_starts_is_recorded_from_its_first_span(
    record: Record,
) -> None:
    recorder = record("--", installed.LAB / "loopbench", "--spans", 5000)
    assert recorder.wait().clean().json()["spans"] == 5000
    assert ledger.count(recorder.ledger) == 5000
    first_id = ledger.query(recorder.ledger, "SELECT min(id) FROM spans")[0][0]
    assert first_id == 0


def test_workers_that_start_all_at_once_are_recorded_from_their_first_spans(
    record: Record, program: Program
) -> None:
    recorder = record("--", program("prefork.c"), WORKERS, 20)
    recorder.wait().clean()
    each = "SELECT count(*) FROM spans WHERE span = 'work' GROUP BY pid"
    assert ledger.query(recorder.ledger, each) == [(20,)] * WORKERS


def test_a_process_with_the_number_of_an_earlier_one_gets_memory_of_its_own(
    record: Record, run: Run, program: Program
) -> None:
    twice = program("same_number.c")
    if run(twice, 1).wait().code == 77:
        pytest.skip("the kernel does not let this user choose process ids")
    recorder = record("--", twice, 1000)
    recorder.wait().clean()
    each = "SELECT count(*) FROM spans WHERE span = 'same' GROUP BY pid"
    assert ledger.query(recorder.ledger, each) == [(2000,)], "one number, and the spans of both"
    assert not any(about(recorder.ledger)["lost"].values())


def test_without_a_recorder_a_program_runs_and_writes_nothing(run: Run, folder: Path) -> None:
    before = set(folder.iterdir())
    ended = run("loopbench", "--spans", 5000).wait().clean()
    assert ended.json()["spans"] == 5000
    assert not ended.err
    assert set(folder.iterdir()) == before


def test_a_second_recorder_is_found_after_the_first_has_gone(record: Record, run: Run) -> None:
    loop = run("loopbench", "--seconds", 600, "--think-us", 50)
    for name in ("first", "second"):
        before = regions(loop)
        recorder = record("-p", loop.pid, "--span", "sdk", name=name).ready()
        recorder.serves(loop, besides=before)
        recorder.interrupt().clean()
        assert ledger.count(recorder.ledger) > 100, name
    assert loop.stop().code == 0


def test_a_recorder_that_is_killed_is_followed_by_another(
    record: Record, run: Run, nothing_left: None
) -> None:
    loop = run("loopbench", "--seconds", 600, "--think-us", 50)
    first = record("-p", loop.pid, "--span", "sdk", name="first").ready()
    first.serves(loop)
    before = regions(loop)
    first.kill()
    second = record("-p", loop.pid, "--span", "sdk", name="second").ready()
    second.serves(loop, besides=before)
    second.interrupt().clean()
    assert ledger.count(second.ledger) > 100
    assert loop.stop().code == 0


def test_a_fork_in_mid_span_harms_neither_parent_nor_child(
    record: Record, program: Program
) -> None:
    recorder = record("--", program("forking.c"))
    pids = recorder.wait().clean().json()
    found = ledger.query(recorder.ledger, "SELECT span, pid, count(*) FROM spans GROUP BY ALL")
    assert set(found) == {
        ("outer", pids["parent"], 1),
        ("inner", pids["parent"], 1),
        ("parent", pids["parent"], 1000),
        ("child", pids["child"], 1000),
    }


def test_without_children_a_fork_leaves_only_the_parent(record: Record, program: Program) -> None:
    recorder = record("--no-children", "--", program("forking.c"))
    recorder.wait().clean()
    assert ledger.count_by_span(recorder.ledger) == {"outer": 1, "inner": 1, "parent": 1000}


def test_every_span_of_a_thousand_threads_that_come_and_go_is_counted(record: Record) -> None:
    recorder = record("--", installed.LAB / "threadstorm", "--threads", 1000, "--spans", 20)
    said = recorder.wait(60).clean().json()
    assert said["threads"] == 1000
    told = about(recorder.ledger)
    counted = ledger.count(recorder.ledger) + sum(
        told["lost"][where] for where in ("ring_full", "region_full", "threads")
    )
    assert counted == said["spans"], told
    assert told["seen"] == said["spans"]
    assert ledger.query(recorder.ledger, "SELECT count(DISTINCT id) FROM spans")[0][0] == (
        ledger.count(recorder.ledger)
    )
    ledger.check_books(recorder.ledger)


def test_spans_nest_and_keep_their_names_and_ids(record: Record, program: Program) -> None:
    recorder = record("--", program("nesting.c"))
    recorder.wait().clean()
    assert ledger.count_by_span(recorder.ledger) == {"outer": 1500, "inner": 1500}
    wrong = ledger.query(
        recorder.ledger,
        "SELECT * FROM spans AS o JOIN spans AS i USING (id) "
        "WHERE o.span = 'outer' AND i.span = 'inner' AND NOT (o.tid = i.tid "
        "AND i.start_ns >= o.start_ns - 1 "
        "AND i.start_ns + i.wall_ns <= o.start_ns + o.wall_ns + 1)",
    )
    assert not wrong, wrong[:3]
    ledger.check_books(recorder.ledger)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_spans_of_a_cplusplus_program_end_with_their_scope(
    compiler: str, record: Record, program: Program
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    recorder = record("--", program("scoped.cc", compiler=compiler))
    recorder.wait().clean()
    assert ledger.count_by_span(recorder.ledger) == {"scoped": 1500}
    assert ledger.query(recorder.ledger, "SELECT count(DISTINCT id) FROM spans") == [(1500,)]


@pytest.fixture
def modules(program: Program) -> Path:
    """A program with spans of its own around those of a shared library."""
    library = program("module.c", "-shared", "-fPIC")
    return program("modules.c", str(library), f"-Wl,-rpath,{library.parent}")


#: Pairs of spans of a program and its library that do not lie in each other on one thread.
UNPAIRED = (
    "SELECT * FROM spans AS p JOIN spans AS m USING (id) "
    "WHERE p.span = 'program' AND m.span = 'module' AND (p.tid != m.tid OR m.wall_ns > p.wall_ns)"
)


def test_a_program_and_its_library_share_the_meters_of_their_threads(
    record: Record, run: Run, modules: Path
) -> None:
    both = run(modules, 1 << 40)
    recorder = record("-p", both.pid, "--span", "sdk").ready()
    recorder.serves(both, 200e6)
    recorder.interrupt().clean()
    counts = ledger.count_by_span(recorder.ledger)
    assert counts.keys() == {"program", "module"}
    # At the begin one may be called a moment before the other; at the end a pair may be open.
    pairs = "SELECT count(*) FROM spans AS p JOIN spans AS m USING (id) WHERE p.span < m.span"
    ((paired,),) = ledger.query(recorder.ledger, pairs)
    assert paired > 1000
    assert min(counts.values()) - paired <= 4
    assert not ledger.query(recorder.ledger, UNPAIRED)
    ledger.check_books(recorder.ledger)


def test_a_library_that_is_loaded_after_the_start_is_recorded(
    record: Record, modules: Path
) -> None:
    recorder = record("--", modules, 500)
    recorder.wait().clean()
    assert ledger.count_by_span(recorder.ledger) == {"program": 1000, "module": 1000}
    assert not ledger.query(recorder.ledger, UNPAIRED)


def test_a_program_with_the_sdk_switched_off_has_no_spans(record: Record, program: Program) -> None:
    off = program("nesting.c", "-DTAILSCOPE_DISABLED")
    ended = record("--span", "sdk", "--", off, name="asked").wait().clean()
    assert "no span was recorded" in ended.err
    assert "recording request" in record("--", off, name="unasked").wait().clean().err


def test_an_annotated_server_is_recorded_without_being_asked_how(
    record: Record,
) -> None:
    with kvserver() as server:
        recorder = record("-p", server.pid).ready()
        with load(server, "--rate", 2000, "-d", "2s") as client:
            client.wait().clean()
        assert "recording sdk" in recorder.interrupt().clean().err
    assert set(ledger.count_by_span(recorder.ledger)) <= {"get", "set"}
    assert ledger.count(recorder.ledger) > 1000
    ledger.check_books(recorder.ledger)


def test_a_program_that_can_not_reach_the_socket_is_named(
    record: Record, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("TAILSCOPE_SOCKET", str(closed / "sdk.sock"))
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    loop = Started(
        [installed.LAB / "loopbench", "--seconds", 60, "--think-us", 50],
        env=os.environ,
        **AS_NOBODY,
    )
    with loop:
        recorder = record("-p", loop.pid, "--span", "sdk").ready()
        until(lambda: "can't reach the recorder" in recorder.err, "the recorder tells of it")
        ended = recorder.interrupt().clean()
        assert loop.stop().code == 0
    assert f"process {loop.pid}" in ended.err
    assert "Permission denied" in ended.err and "SDK spans are not recorded" in ended.err
