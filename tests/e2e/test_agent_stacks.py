"""Functions in the ledgers of an agent, which follow each other while spans are under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rig import ledger
from rig.agent import Agent
from rig.processes import Started
from rig.recorder import about
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]
Program = Callable[..., Path]


@pytest.fixture
def planted(agent: Start, run: Run, program: Program) -> Callable[..., Agent]:
    """An agent with short ledgers, and tests/c/planted.c in a mode beside it."""
    path = program("planted.c")

    def start(age: str, *arguments: object) -> Agent:
        spans = f'spans = ["uprobe:{path}:handle_request"]\nstacks = 997'
        started = agent(f'exe = "{path}"', record=spans, ledger=f'rotate_age = "{age}"')
        run(path, *arguments)
        return started

    return start


def sealed_with_rows(agent: Agent, number: int) -> list[Path]:
    """The ledgers, once this number of them was sealed with rows, and the agent has ended."""

    def full() -> list[Path]:
        begun = [one for one in agent.ledgers() if (one / "ledger.json").exists()]
        return [one for one in begun if about(one).get("rows", 0)]

    until(lambda: sum(about(one)["state"] == "done" for one in full()) >= number, "sealed ledgers")
    agent.stop().clean()
    return full()


def asked(ledgers: list[Path], sql: str) -> list[tuple[Any, ...]]:
    """The answer to SQL over the samples, whose stacks are named by their ledger and number."""
    with duckdb.connect() as engine:
        for name in ("samples", "stacks"):
            files = [str(file) for one in ledgers for file in one.glob(f"_stacks/{name}-*.pq")]
            engine.execute(
                f"CREATE VIEW {name} AS SELECT *, parse_path(filename)[-3] AS ledger "
                f"FROM read_parquet({files}, filename = true)"
            )
        return engine.execute(sql).fetchall()


def test_each_ledger_names_the_function_of_its_slow_spans(planted: Callable[..., Agent]) -> None:
    ledgers = sealed_with_rows(planted("2s", "sleep", 1_000_000, 10_000), 3)
    for one in ledgers[:3]:
        explanation = ledger.explain(one)
        (sleep,) = (c for c in explanation["code"]["causes"] if c["cause"] == "sleep")
        assert sleep["functions"][0]["function"] == "planted_sleep", sleep
    # Each of the waits was longer than those of which only some are taken.
    ((waits,),) = asked(
        ledgers,
        "SELECT count(*) FROM samples JOIN stacks USING (ledger, stack) "
        "WHERE cause = 'sleep' AND ns > 8e6 AND function = 'planted_sleep'",
    )
    slow = sum(ledger.count(one, "sleep_ns > 8000000") for one in ledgers)
    assert slow > 0 and waits == slow
    assert all(about(one)["lost"]["stacks"] == 0 for one in ledgers)


@pytest.mark.measures
def test_spans_that_outlast_a_ledger_have_all_of_their_samples(
    planted: Callable[..., Agent],
) -> None:
    # A planted call of 2.5 s is under way while two or three ledgers end.
    ledgers = sealed_with_rows(planted("1s", "cpu", 1_000_000, 2_500_000), 4)
    found = asked(
        ledgers,
        "SELECT wall_ns, sum(ns), avg((function = 'planted_cpu')::INT) FROM samples "
        "JOIN stacks USING (ledger, stack) "
        "WHERE depth = 0 AND cause = 'running' AND wall_ns > 2e9 GROUP BY span, start_ns, wall_ns",
    )
    assert len(found) >= 2
    for wall, sampled, planted_share in found:
        assert 0.85 * wall < sampled < 1.15 * wall and planted_share > 0.9, found
