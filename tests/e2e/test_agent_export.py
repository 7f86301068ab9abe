"""What the agent sends to a collector, decoded by OpenTelemetry's own messages for Python."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proof.ports import free_port
from rig import ledger
from rig.agent import LOOPBENCH, Agent, all_exported, dropped, recorded
from rig.collector import Collector, serving
from rig.processes import Started
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as server:
        yield server


def test_kept_spans_come_as_they_are_in_the_ledger(
    agent: Start, run: Run, collector: Collector
) -> None:
    otlp = f'endpoint = "{collector.endpoint}"\nspans_per_second = 100000\n'
    started = agent(LOOPBENCH, otlp=otlp + 'headers = { "x-tenant" = "t1" }')
    bench = run("loopbench", "--seconds", 2, "--think-us", 200)
    bench.wait().clean()
    kept = all_exported(started, lambda: len(collector.spans()))
    started.stop().clean()
    assert collector.headers[0]["x-tenant"] == "t1"
    (only,) = started.ledgers()
    rows = dict(
        ledger.query(only, "SELECT start_ns, wall_ns FROM spans"),
    )
    spans = collector.spans()
    assert {
        s.start_time_unix_nano: s.end_time_unix_nano - s.start_time_unix_nano for s in spans
    } == rows
    assert len({span.span_id for span in spans}) == kept
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
    for span in spans[:50]:
        attributes = {a.key: a.value for a in span.attributes}
        ns = {k: v.int_value for k, v in attributes.items() if k.endswith("_ns")}
        assert sum(ns.values()) == span.end_time_unix_nano - span.start_time_unix_nano, ns
        assert attributes["tailscope.weight"].double_value == 1.0
    resource = collector.requests[0].resource_spans[0].resource
    told = {a.key: a.value for a in resource.attributes}
    assert told["process.pid"].int_value == bench.pid
    # It listens on no port by which its instance could be known.
    instance = told["service.instance.id"].string_value
    assert instance == f"{told['host.name'].string_value}/{bench.pid}"


def test_what_is_recorded_when_it_ends_is_sent_too(
    agent: Start, run: Run, collector: Collector
) -> None:
    otlp = f'endpoint = "{collector.endpoint}"\nspans_per_second = 100000'
    started = agent(LOOPBENCH, otlp=otlp)
    run("loopbench", "--seconds", 60, "--think-us", 500)
    until(lambda: started.figures()["tailscope_rows_total"] > 1000, "it is recorded")
    started.stop().clean()
    (only,) = started.ledgers()
    assert len(collector.spans()) == ledger.count(only) == started.rows()


@pytest.mark.more
def test_a_collector_that_is_down_costs_spans_there_and_none_here(agent: Start, run: Run) -> None:
    # A port of ours, on which we don't listen.
    otlp = f'endpoint = "http://127.0.0.1:{free_port()}"\nqueue = 100\nspans_per_second = 100000'
    started = agent(LOOPBENCH, otlp=otlp)
    run("loopbench", "--seconds", 2, "--think-us", 50).wait().clean()
    kept = recorded(started)
    figures = until(
        lambda: dropped(f := started.figures()) == kept and f, "each is counted as dropped"
    )
    assert figures["tailscope_otlp_spans_total"] == 0
    assert figures["tailscope_otlp_dropped_total{reason=queue}"] > kept - 1000
    assert figures["tailscope_otlp_failures_total"] >= 1
    assert started.lost() == {}
    started.stop().clean()
    assert started.rows() == kept


def test_a_collector_that_is_slow_gets_what_the_queue_holds(
    agent: Start, run: Run, collector: Collector
) -> None:
    collector.hold.clear()
    otlp = f'endpoint = "{collector.endpoint}"\nqueue = 100\nspans_per_second = 100000'
    started = agent(LOOPBENCH, otlp=otlp + '\ntimeout = "60s"')
    run("loopbench", "--seconds", 2, "--think-us", 50).wait().clean()
    kept = recorded(started)
    collector.hold.set()
    figures = until(
        lambda: (f := started.figures())["tailscope_otlp_spans_total"] + dropped(f) == kept and f,
        "each is sent or counted as dropped",
    )
    assert figures["tailscope_otlp_spans_total"] == len(collector.spans()) > 0
    assert dropped(figures) > 0


@pytest.mark.more
def test_a_collector_that_never_answers_costs_spans_there_and_none_here(
    agent: Start, run: Run
) -> None:
    # Connections get as far as the kernel's queue, and what is sent into its buffers.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        otlp = f'endpoint = "{endpoint}"\nqueue = 100\nspans_per_second = 100000'
        started = agent(LOOPBENCH, otlp=otlp + '\ntimeout = "500ms"')
        run("loopbench", "--seconds", 2, "--think-us", 50).wait().clean()
        kept = recorded(started)
        figures = until(
            lambda: dropped(f := started.figures()) == kept and f, "each is counted as dropped"
        )
        assert figures["tailscope_otlp_spans_total"] == 0
        assert figures["tailscope_otlp_failures_total"] >= 1
        assert started.lost() == {}
        started.stop().clean()
        assert started.rows() == kept


def test_one_that_refuses_is_not_asked_again(
    agent: Start, run: Run, collector: Collector, folder: Path
) -> None:
    collector.status = 400
    started = agent(LOOPBENCH, otlp=f'endpoint = "{collector.endpoint}"')
    run("loopbench", "--seconds", 1, "--think-us", 5000).wait().clean()
    refused = recorded(started)
    reason = "tailscope_otlp_dropped_total{reason=collector}"
    until(lambda: started.figures()[reason] == refused, "they are counted as dropped")
    # Another one by a reload; what was counted stays counted.
    with serving(Collector()) as other:
        config = folder / "agent.toml"
        config.write_text(config.read_text().replace(collector.endpoint, other.endpoint))
        started.reload()
        run("loopbench", "--seconds", 1, "--think-us", 5000).wait().clean()
        until(lambda: other.spans(), "the other one has some")
        kept = recorded(started)
        until(lambda: len(other.spans()) == kept - refused, "the other one has them")
    assert started.figures()[reason] == refused
