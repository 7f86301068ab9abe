"""What to do about a cause: a line for each that matters, with who is to blame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from tailscope.ledger.causes import MEANING
from tailscope.present.advice import ADVICE, MOST, advice, advised
from tailscope.present.pages.explain import page
from tailscope.present.terminal import plain
from tailscope.present.text import render
from tailscope.statistics.blame import Blame, Blamed
from tailscope.statistics.chain import Chain, Opened


def by(name: str, share: float = 0.9) -> Blame:
    return Blame((Blamed(name, share, 1_000.0, 10.0),), 0, 0.0, 1 - share)


def test_every_cause_of_the_schema_has_a_line_that_fits_80_columns() -> None:
    assert set(ADVICE) == set(MEANING)
    for cause in MEANING:
        line = f"  {cause}: {advice(cause, None)}"
        assert len(plain(line)) <= 80, line
        assert not line.endswith(".")


def test_a_cause_that_nobody_knows_yet_gets_no_line() -> None:
    assert advice("of_tomorrow", None) == ""
    assert advice("of_tomorrow", by("nginx")) == ""


@pytest.mark.parametrize(
    ("cause", "who", "words"),
    [
        ("runqueue", "stress-ng", "move stress-ng to other CPUs"),
        ("runqueue", "(idle)", "idle states"),
        ("preempted", "ksoftirqd/1", "run the server on others"),
        ("lock", "mysqld/ib_log", "what mysqld/ib_log does while others wait"),
        ("lock", "(interrupt)", "timed waits"),
        ("lock", "gunicorn/report (GIL)", "move what gunicorn/report does to another process"),
        ("network", "(interrupt)", "timed polls"),
        ("network", "postgres", "postgres answers it"),
        ("queue", "a 30 ms request of 10.0.0.7:4711", "shorten a 30 ms request"),
        ("irq", "virtio2-input.0", "move virtio2-input.0 to another CPU"),
        ("irq", "function call", "membarrier"),
        ("irq", "vector 0x30", "/proc/interrupts"),
        ("softirq_net", "NET_RX", "rps_cpus"),
        ("softirq_net", "NET_TX", "xps_cpus"),
        ("softirq_other", "RCU", "rcu_nocbs"),
        ("tcp", "nagle", "TCP_NODELAY"),
        ("tcp", "receive window", "the client reads slowly"),
        ("tcp", "congestion window", "tcp_slow_start_after_idle"),
        ("tcp", "other", "ss -ti"),
        ("stopped", "(cgroup freezer)", "cgroup.freeze"),
        ("stopped", "strace", "strace stopped it"),
        ("throttled", "", "cpu.max"),
        ("reclaim", "", "memory.high"),
        ("accept", "", "SO_REUSEPORT"),
        ("steal", "", "dedicated CPUs"),
    ],
)
def test_the_line_is_about_who_is_to_blame(cause: str, who: str, words: str) -> None:
    assert words in advice(cause, by(who) if who else None)


def test_names_that_are_no_thread_are_never_told_to_move() -> None:
    for cause in MEANING:
        for who in ("(idle)", "(interrupt)", "(other)", "(of tomorrow)"):
            assert "(other)" not in advice(cause, by(who))
            assert "(of tomorrow)" not in advice(cause, by(who))


def test_somebody_with_a_small_part_of_it_is_not_named() -> None:
    assert "stress-ng" not in advice("runqueue", by("stress-ng", share=0.3))
    assert advice("runqueue", by("stress-ng", share=0.3)) == advice("runqueue", None)


def test_vectors_that_nothing_helps_against_get_no_line() -> None:
    assert advice("irq", by("spurious")) == ""


def test_the_text_and_the_page_say_it(two_values: Path) -> None:
    who = "CASE WHEN lock_ns > 0 THEN 'backup' END"
    ledger = rewrite(two_values, f"SELECT * EXCLUDE (row), ({who}) AS lock_by FROM {{rows}}")
    found = tailscope.open(ledger).explain("p99")
    line = "shorten what backup does while others wait for it, or split the lock"
    assert list(advised(found)) == [("lock", line)]
    assert f"\nwhat to do\n  lock: {line}\n" in render(found)
    assert f"<dt>lock</dt><dd>{line}</dd>" in page(found)


def test_what_another_server_did_is_the_line_where_its_ledger_was_opened(make: Make) -> None:
    slow = np.arange(1000) % 50 == 49
    ledger = rewrite(
        make(wall_ns=np.where(slow, 40_000_000, 100_000)),
        "SELECT * EXCLUDE (row), CASE WHEN wall_ns > 1000000 THEN 39900000 ELSE 0 END AS "
        "downstream_ns, (wall_ns > 1000000)::BIGINT AS downstream_n FROM {rows}",
    )
    explanation = tailscope.open(ledger).explain("p99")
    line = dict(advised(explanation))["downstream"]
    assert "--through" in line
    opened = Opened(10.0, 10.0, 10.0, 8.5e6, {"sleep": 1e6, "runqueue": 7e6}, 5e5, 0.0, {})
    chain = Chain(("backend",), opened, opened, 0.0, ("a",))
    line = dict(advised(replace(explanation, through=chain)))["downstream"]
    assert line == "there it is mostly runqueue: explain backend"


def test_a_flat_distribution_needs_no_advice(make: Make) -> None:
    found = tailscope.open(make(wall_ns=[5_000] * 500, lock_ns=[1_000] * 500)).explain("p99")
    assert list(advised(found)) == []
    assert "what to do" not in render(found)


def test_causes_with_one_line_share_it_and_at_most_three_lines_are_said(make: Make) -> None:
    kind = np.arange(2_000) % 50
    causes = ("runqueue", "preempted", "lock", "io", "fault")
    struck = {name: np.where(kind == 10 * i, 900_000, 0) for i, name in enumerate(causes)}
    ledger = make(
        wall_ns=100_000 + sum(struck.values()),
        **{f"{name}_ns": values for name, values in struck.items()},
    )
    lines = list(advised(tailscope.open(ledger).explain("p99")))
    assert len(lines) == MOST
    assert any(set(names.split(", ")) == {"runqueue", "preempted"} for names, _ in lines)


def test_a_cause_whose_columns_only_newer_ledgers_have(make: Make) -> None:
    slow = np.arange(1000) % 50 == 49
    wall = np.where(slow, 40_000_000, 100_000)
    ledger = rewrite(
        make(wall_ns=wall),
        "SELECT * EXCLUDE (row), CASE WHEN wall_ns > 1000000 THEN 39900000 ELSE 0 END AS tcp_ns, "
        "(wall_ns > 1000000)::BIGINT AS tcp_n, "
        "CASE WHEN wall_ns > 1000000 THEN 'nagle' END AS tcp_by FROM {rows}",
    )
    old = make("old", wall_ns=wall)
    found = tailscope.open(ledger).explain("p99")
    assert found.causes[0].name == "tcp"
    assert "TCP_NODELAY" in render(found)
    assert "nagle (100 %)" in page(found)
    assert "tcp" not in tailscope.open(old).explain("p99").never
    both = tailscope.open(ledger, old).explain("p99")
    assert any("tcp was measured in 50%" in said for said in both.provenance.warnings)
