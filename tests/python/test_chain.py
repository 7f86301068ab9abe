"""Calls of another server, and the requests that they were there."""

from __future__ import annotations

import numpy as np
import pytest
from tailscope.engines.calls import Calls, Served
from tailscope.present import chain_text
from tailscope.present.terminal import Terminal
from tailscope.statistics.chain import (
    Chain,
    closed_of,
    join,
    open_calls,
    synchronised,
    words,
)

MS = 1_000_000


def made(seed: int, ahead_ns: int, calls: int = 400) -> tuple[Calls, Served]:
    """Calls on eight connections, one after the other on each, and their requests in any order.

    The requests' clock is ahead. The i-th request is that of the i-th call.
    """
    draw = np.random.default_rng(seed)
    connection = draw.integers(-(1 << 62), 1 << 62, 8)[draw.integers(0, 8, calls)]
    begin = np.sort(draw.integers(0, 20 * MS, calls)) + 30 * MS * np.arange(calls)
    length = draw.integers(1 * MS, 10 * MS, calls)
    there, back = draw.integers(10_000, 100_000, (2, calls))
    asked = Calls(
        connection=connection,
        start=begin,
        length=length,
        known=np.ones(calls, dtype=bool),
        downstream=length,
        weight=np.ones(calls),
        requests=float(2 * calls),
    )
    wall = length - there - back
    served = Served(
        connection=connection,
        start=begin + there + ahead_ns,
        wall=wall,
        span=np.array(["GET /a", "GET /b"])[np.arange(calls) % 2],
        causes={"sleep": wall // 2, "running": wall - wall // 2},
    )
    return asked, served


def shuffled(served: Served, order: np.ndarray) -> Served:
    """The same requests in another order."""
    return Served(
        *(part[order] for part in (served.connection, served.start, served.wall, served.span)),
        {name: ns[order] for name, ns in served.causes.items()},
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_call_finds_its_own_request(seed: int) -> None:
    asked, served = made(seed, 0)
    order = np.random.default_rng(seed).permutation(len(served.start))
    found = join(asked, shuffled(served, order), 0.0)
    assert (order[found] == np.arange(len(order))).all()


def test_a_call_without_a_request_stays_alone() -> None:
    asked, served = made(1, 0)
    half = np.arange(0, len(served.start), 2)
    found = join(asked, shuffled(served, half), 0.0)
    assert (found[1::2] == -1).all()
    assert (found[::2] == np.arange(len(half))).all()
    elsewhere = Served(served.connection + 1, served.start, served.wall, served.span, served.causes)
    assert (join(asked, elsewhere, 0.0) == -1).all()


@pytest.mark.parametrize("ahead_ms", [-4, 3])
def test_the_offset_of_two_clocks_comes_from_the_exchanges(ahead_ms: int) -> None:
    asked, served = made(2, ahead_ms * MS)
    offset, found = synchronised(asked, served)
    assert offset == pytest.approx(ahead_ms * MS, abs=50_000)
    assert (found == np.arange(len(found))).all()


def test_time_that_is_opened_is_the_time_of_the_calls() -> None:
    asked, served = made(3, 0)
    found = join(asked, served, 0.0)
    found[::4] = -1
    opened = open_calls(asked, served, found)
    assert (opened.spans, opened.asked, opened.joined) == (800, 400, 300)
    parts = sum(opened.causes.values()) + opened.path_ns + opened.closed_ns
    assert parts == pytest.approx(opened.downstream_ns)
    assert opened.downstream_ns == pytest.approx(asked.length.sum() / 800)
    assert opened.closed_ns == pytest.approx(asked.length[::4].sum() / 800)
    assert set(opened.names) == {"GET /a", "GET /b"}
    assert sum(opened.names.values()) == pytest.approx(sum(opened.causes.values()), rel=1e-6)


def test_a_request_that_goes_on_after_its_answer_began_counts_in_part() -> None:
    asked, served = made(4, 0)
    longer = Served(
        served.connection,
        served.start,
        served.wall * 3,
        served.span,
        {name: ns * 3 for name, ns in served.causes.items()},
    )
    opened = open_calls(asked, longer, join(asked, longer, 0.0))
    parts = sum(opened.causes.values()) + opened.path_ns + opened.closed_ns
    assert parts == pytest.approx(opened.downstream_ns)


def test_what_was_not_joined_is_said_first() -> None:
    asked, served = made(5, 0)
    index = join(asked, served, 0.0)
    index[:100] = -1
    opened = open_calls(asked, served, index)
    chain = Chain(("backend",), opened, opened, 0.0, ("db1",))
    assert chain.notices[0].startswith("25 % of the requests that waited for another server")
    assert "300 of 400" in next(words(chain))
    lines = list(chain_text.render(chain, "p99", Terminal()))
    assert any("not opened" in line for line in lines)
    assert any("GET /a" in line for line in lines)
    alone = closed_of(asked)
    assert (alone.joined, alone.closed_ns) == (0, alone.downstream_ns)
