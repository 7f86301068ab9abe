"""Reloads of the agent that are refused half-way, or take what the agent itself still has."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.agent import LOOPBENCH, Agent, recorded
from rig.processes import Started, favoured
from rig.servers import free_port, load, memcached
from rig.waiting import until

Run = Callable[..., Started]
Start = Callable[..., Agent]


def change(started: Agent, config: Path, old: str, new: str) -> str:
    """Has the agent read the file again with this change; what it then says."""
    before = len(started.err)
    config.write_text(config.read_text().replace(old, new))
    os.kill(started.pid, signal.SIGHUP)
    until(
        lambda: any(
            said in started.err[before:]
            for said in (
                "reloaded: ",
                "with new kernel programs: ",
                "the old configuration stays in use",
            )
        ),
        "it has read the configuration again",
    )
    return started.err[before:]


def test_metrics_may_move_to_an_address_that_has_the_old_one_in_it(
    agent: Start, folder: Path
) -> None:
    port = free_port()
    started = agent(LOOPBENCH, metrics=f'listen = "127.0.0.1:{port}"')
    config = folder / "agent.toml"
    said = change(started, config, "127.0.0.1", "0.0.0.0")
    assert "reloaded: " in said, said
    until(lambda: f"http://0.0.0.0:{port}/metrics" in started.err, "it says where they are")
    assert started.figures()["tailscope_config_last_reload_successful"] == 1
    # Where something else is wrong they are where they were.
    config.write_text(config.read_text().replace("sdk", "uprobe:/nowhere/program:f"))
    said = change(started, config, "0.0.0.0", "127.0.0.1")
    assert "the old configuration stays in use" in said and "/nowhere/program" in said, said
    assert started.figures()["tailscope_config_last_reload_successful"] == 0


def test_a_reload_that_is_refused_leaves_programs_with_the_sdk_their_recorder(
    agent: Start, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder / "none"))
    started = agent(LOOPBENCH)
    config = folder / "agent.toml"
    config.write_text(config.read_text() + '[otlp]\nendpoint = "https://localhost:1"\n')
    # Other programs are loaded for this, before it turns out that there is nobody to trust.
    said = change(started, config, '["sdk"]', '["sdk", "syscall:ready..send"]')
    assert "no certificates" in said and "the old configuration stays in use" in said, said
    run("loopbench", "--spans", 1000).wait().clean()
    assert recorded(started) == 1000
    # One that is applied hands the socket on.
    config.write_text(config.read_text().split("[otlp]")[0])
    said = change(started, config, "[otlp]", "")
    assert "with new kernel programs" in said, said
    run("loopbench", "--spans", 1000).wait().clean()
    until(lambda: started.figures()["tailscope_rows_total"] == 2000, "those are recorded too")
    assert not list(folder.glob("sdk.sock?")), "the socket is in its place"


def served(port: int) -> int:
    """The requests that memcached itself has counted."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as asking:
        asking.sendall(b"stats\r\n")
        told = b""
        while not told.endswith(b"END\r\n"):
            told += asking.recv(1 << 16)
    return sum(int(count) for count in re.findall(rb"STAT cmd_(?:get|set) (\d+)", told))


@pytest.mark.measures
def test_other_programs_take_over_without_a_gap(agent: Start, folder: Path) -> None:
    with memcached(0) as server:
        spans = 'spans = ["syscall:ready..send"]'
        started = agent(f"pid = {server.pid}", record=spans, under=favoured())
        with load(server, "--rate", 10_000, "-d", "4s", "--keys", 1) as asking:
            until(lambda: started.figures()["tailscope_rows_total"] > 5_000, "it is recorded")
            config = folder / "agent.toml"
            said = change(started, config, "[record]\n", "[record]\nchildren = false\n")
            assert "with new kernel programs" in said, said
            asking.wait().clean()
        asked = served(server.port)
        # All that is read by its end is in its ledgers, so nothing has to be waited for.
        started.stop().clean()
    assert len(started.ledgers()) == 2
    # Those that were open at that moment, or ended between the two last looks: these are in both
    # ledgers, and are more where something else had the CPU meanwhile. A gap of 10 ms would be a
    # hundred.
    missing = asked - started.rows()
    assert -100 <= missing <= 20, missing
