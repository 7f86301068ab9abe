"""What a recording does not cover is said before the first figure, with its share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tailscope
from command import Command, flat, runner
from conftest import Make, rewrite
from explain_synthetic import World
from tailscope import cli, diff_cli
from tailscope.present.pages.explain import page
from tailscope.statistics.coverage import Coverage, Shared

WALL = np.where(np.arange(1000) % 50 == 49, 1_000_000, 100_000)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(cli.main, capsys)


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(diff_cli.main, capsys)


def lacking(make: Make, name: str = "ledger", **uncovered: Any) -> Path:  # noqa: ANN401
    return make(name, {"uncovered": uncovered}, wall_ns=WALL)


def moved(make: Make, requests: int, name: str = "ledger", **more: Any) -> Path:  # noqa: ANN401
    """A ledger of a thousand rows, of which some were answered by another thread."""
    unknown = np.where(np.arange(1000) < requests, WALL - 1_000, 0)
    return make(name, wall_ns=WALL, unknown_ns=unknown, **more)


def coverage(ledger: Path) -> Coverage:
    return tailscope.open(ledger).explain("p99").coverage


def test_requests_that_another_thread_answered_come_first(make: Make, explain: Command) -> None:
    ledger = moved(make, 520)
    _, out, _ = explain(ledger)
    first = flat(out.split("\n\n")[0])
    assert first == (
        "52 % of the requests moved to another thread (Go, a pool of workers): their latency is "
        "right, but their cause is `unknown` The causes of the other requests may be a runtime's "
        "idle wait, not time that a request needed"
    )
    assert out.index("52 %") < out.index("p99 of")
    text = page(tailscope.open(ledger).explain("p99"))
    assert text.index("52 % of the requests") < text.index("<h1>")


def test_json_has_the_counts_and_the_shares(make: Make, explain: Command) -> None:
    ledger = lacking(
        make, multiplexed=1_000, pipelined=500, unanswered=0, continued=25, encrypted=250
    )
    found = json.loads(explain(ledger, "--json")[1])["coverage"]
    assert found["requests"] == 2_500
    assert found["uncovered"] == {
        "multiplexed": 1_000, "pipelined": 500, "unanswered": 0, "continued": 25, "encrypted": 250,
    }  # fmt: skip
    assert found["not_in_recording_share"] == pytest.approx(0.6)
    assert found["too_short_share"] == pytest.approx(0.01)
    assert found["over_tls_share"] == pytest.approx(0.1)
    assert found["unknown_share"] == 0
    assert found["shared_thread"] == []
    assert len(found["notices"]) == 3


@pytest.mark.parametrize(
    ("uncovered", "words"),
    [
        ({"pipelined": 9_000}, "90 % of the requests are not in this recording: they were pipe"),
        ({"unanswered": 111}, "10 % of the requests are not in this recording: their client"),
        ({"continued": 20}, "2.0 % of the requests have answers that continued after the end"),
        ({"ambiguous": 30}, "3.0 % of the requests overlapped, or other threads worked for them"),
        ({"unnamed": 200}, "20 % of the requests are named `(other)`"),
        ({"encrypted": 500}, "50 % of the requests came over TLS: handshakes count as requests"),
        (
            {"encrypted": 500, "handshakes": 3},
            "50 % of the requests came over TLS, and nothing tells handshakes",
        ),
        (
            {"multiplexed": 600, "pipelined": 400},
            "50 % of the requests are not in this recording: 30 % over HTTP/2 or QUIC",
        ),
    ],
)
def test_each_reason_is_named(make: Make, uncovered: dict[str, int], words: str) -> None:
    assert coverage(lacking(make, **uncovered)).notices[0].startswith(words)


def test_half_a_percent_is_the_least_that_is_said(make: Make) -> None:
    assert coverage(lacking(make, "few", unanswered=4)).notices == ()
    (said,) = coverage(lacking(make, "more", unanswered=6)).notices
    assert said.startswith("0.6 % of the requests")
    assert coverage(moved(make, 4, "unmoved")).notices == ()


def test_a_few_handed_over_leave_the_other_causes_alone(make: Make) -> None:
    assert len(coverage(moved(make, 40, "few")).notices) == 1
    assert len(coverage(moved(make, 60, "more")).notices) == 2


def test_the_rows_of_a_sampled_ledger_count_by_their_weight(make: Make) -> None:
    ledger = make(about={"uncovered": {"unanswered": 10_000}}, wall_ns=WALL, weight=[10] * 1_000)
    assert coverage(ledger).requests == 20_000
    assert coverage(ledger).share("unanswered") == 0.5
    ledger = moved(make, 500, "moved", weight=[10] * 1_000)
    assert coverage(ledger).handed_over_share == 0.5


def test_two_recordings_count_together(make: Make) -> None:
    ledgers = (lacking(make, "one", unanswered=1_000), lacking(make, "two", unanswered=3_000))
    found = tailscope.open(*ledgers).explain("p99").coverage
    assert (found.requests, found.uncovered) == (6_000, {"unanswered": 4_000})


def test_spans_of_another_source_are_not_the_requests(make: Make) -> None:
    make(wall_ns=WALL, world=World(1_000, span="query"))
    ledger = make(about={"uncovered": {"unanswered": 1_000}}, number=1, wall_ns=WALL)
    assert coverage(ledger).requests == 2_000


@pytest.mark.parametrize("uncovered", [None, [], {"unanswered": None}, {"unanswered": "many"}])
def test_a_ledger_that_does_not_know_says_nothing(
    make: Make, explain: Command, uncovered: object
) -> None:
    ledger = make(about={"uncovered": uncovered}, wall_ns=WALL)
    assert explain(ledger)[1].startswith("p99 of recv..send")
    found = coverage(ledger)
    assert (found.uncovered, found.notices) == (None, ())
    assert found.to_dict()["not_in_recording_share"] is None


def shared(ledger: Path, others: str) -> Path:
    """The ledger with the number of other requests on the thread, by an expression."""
    select = f"SELECT * EXCLUDE (row), ({others})::BIGINT AS others FROM {{rows}}"
    return rewrite(ledger, select)


def test_slow_requests_that_shared_their_thread_are_counted_by_weight(
    make: Make, explain: Command
) -> None:
    slow = np.flatnonzero(WALL > 500_000)
    weight = np.ones(1_000)
    weight[slow[:5]] = 3
    rows = ", ".join(map(str, slow[:5]))
    ledger = shared(
        make(wall_ns=WALL, weight=weight), f"CASE WHEN row IN ({rows}) THEN 2 ELSE 0 END"
    )
    assert coverage(ledger).shared == (Shared("recv..send", 0.5),)
    first = flat(explain(ledger)[1].split("\n\n")[0])
    assert first == (
        "50 % of the slow requests shared their thread with other requests while they were open: "
        "part of their `running` may belong to those"
    )


def test_fast_requests_that_share_their_thread_are_no_matter(make: Make) -> None:
    ledger = shared(make(wall_ns=WALL), "CASE WHEN wall_ns < 500000 THEN 7 ELSE 0 END")
    assert coverage(ledger).shared == (Shared("recv..send", 0.0),)
    assert coverage(ledger).notices == ()


def test_a_column_of_nulls_is_not_known(make: Make) -> None:
    assert coverage(shared(make(wall_ns=WALL), "NULL")).shared == ()


def test_diff_says_it_of_each_side_before_its_headline(make: Make, diff: Command) -> None:
    base = shared(make("base", wall_ns=WALL), "1")
    new = lacking(make, "new", unanswered=1_000)
    _, out, _ = diff(base, new)
    first = flat(out.split("\n\n")[0])
    assert first.startswith("BASE: 100 % of the slow requests shared their thread")
    assert "NEW: 50 % of the requests are not in this recording" in first
    found = json.loads(diff(base, new, "--json")[1])["coverage"]
    assert found["base"]["shared_thread"] == [{"span": "recv..send", "share": 1.0}]
    assert found["new"]["not_in_recording_share"] == 0.5


def test_notices_fit_the_terminal_in_ascii(
    make: Make, explain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    out = explain(lacking(make, multiplexed=900, pipelined=90, continued=90))[1]
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80


def test_a_ledger_without_a_row_says_which_requests_came(tmp_path: Path, explain: Command) -> None:
    def said(**uncovered: int) -> str:
        about = {"schema": 1, "state": "done", "files": 0, "rows": 0, "uncovered": uncovered}
        (tmp_path / "ledger.json").write_text(json.dumps(about))
        return explain(tmp_path)[2]

    assert "is empty: no span ended" in said(multiplexed=0, continued=0)
    assert "has no row: 1,200 requests came, and they came over HTTP/2 or QUIC" in said(
        multiplexed=1_200
    )
    assert (
        "has no row: 9 requests came: 7 over HTTP/2 or QUIC, where they could not be separated; "
        "2 without an answer before their client gave up or their connection ended"
    ) in said(multiplexed=7, unanswered=2)


@pytest.mark.parametrize("place", ["lost", "adjusted"])
def test_adjusted_rows_are_not_losses(make: Make, explain: Command, place: str) -> None:
    told = {"lost": {"ring_full": 0}}
    told[place] = told.get(place, {}) | {"overdrawn": 3, "switches": 2}
    ledger = make(about=told, wall_ns=WALL)
    out = flat(explain(ledger)[1])
    assert (
        "nothing lost; adjusted, not lost: 3 rows whose causes exceeded their wall time, "
        "2 switches that the kernel did not report"
    ) in out
    (found,) = json.loads(explain(ledger, "--json")[1])["recordings"]
    assert found["lost"] == {"ring_full": 0}
    assert found["adjusted"] == {"overdrawn": 3, "switches": 2}
