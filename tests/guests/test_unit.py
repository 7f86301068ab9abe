"""The agent as systemd's unit runs it: few capabilities, few system calls, no network, all rows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from guest import ROOT, Unavailable, boot
from guest.kernels import KERNELS
from guest.session import Session
from recording import PATIENCE_MS
from rig import ledger
from test_kernels import SERVER

PACKAGING = ROOT / "packaging"
#: By capabilities(7): DAC_READ_SEARCH, SYS_PTRACE, PERFMON, BPF, CHECKPOINT_RESTORE; and SYS_ADMIN,
#: which `linux-6.1.conf` adds.
RUNNING = sum(1 << number for number in (2, 19, 21, 38, 39, 40))
#: A program with the SDK, of another user: it starts when the agent runs, and goes on.
PROGRAM = f"""export TAILSCOPE_PATIENCE_MS={PATIENCE_MS}
su -s /bin/sh nobody -c 'exec /lab/loopbench --seconds 600' >where & program=$!"""
#: The installation that the unit's own first lines describe; there is no journal in the guest.
INSTALL = """set -e
cp /bin/tailscope /usr/bin/tailscope
mkdir -p /etc/tailscope /etc/systemd/system/tailscope-agent.service.d
cp /share/agent.toml /etc/tailscope/agent.toml
cp /share/tailscope-agent.service /share/tailscope-agent.socket /etc/systemd/system/
cp /share/linux-6.1.conf /etc/systemd/system/tailscope-agent.service.d
cat >/etc/systemd/system/tailscope-agent.service.d/log.conf <<END
[Service]
StandardOutput=append:/run/agent.log
StandardError=append:/run/agent.log
END
systemctl daemon-reload
systemctl start tailscope-agent.socket tailscope-agent || { cat /run/agent.log >&2; exit 9; }
systemctl is-active tailscope-agent
"""
#: Waits until the agent's figures have a line.
FIGURES = """
figures() { wget -q -O - http://127.0.0.1:9745/metrics; }
has() {
    for try in $(seq 300); do
        figures | grep -q "$1" && return
        usleep 100000
    done
    echo "never: $1" >&2; figures >&2; cat /run/agent.log >&2; exit 9
}
"""
RULES = "".join(f'[[process]]\nname = "{name}"\n' for name in ("kvserver", "loopbench"))


def configuration(spans: str) -> str:
    """The installed one, with the test's programs and these spans."""
    text = (PACKAGING / "agent.toml").read_text()
    text = text.replace('#: spans = ["sdk"]', f"spans = {spans}")
    text = text.replace("#: stacks = 99 ", "stacks = 997 ")
    assert f"spans = {spans}" in text and "\nstacks = 997 " in text
    return text.replace("[[process]]\n", RULES + "[[process]]\n", 1)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A guest whose first process is systemd, and that has the agent installed and running."""
    kernel = KERNELS["6.1"]
    share = tmp_path_factory.mktemp("share")
    for name in ("tailscope-agent.service", "tailscope-agent.socket", "linux-6.1.conf"):
        shutil.copy(PACKAGING / name, share)
    (share / "agent.toml").write_text(configuration('["syscall:recv..send", "sdk"]'))
    try:
        session = Session(kernel, boot.prepare(kernel), share, with_systemd=True)
    except Unavailable as reason:
        pytest.skip(f"no guest with systemd: {reason}")
    with session:
        assert "active" in session.shell(INSTALL, 90).clean().out
        yield session


def shown(guest: Session, *properties: str) -> dict[str, str]:
    """Properties of the unit."""
    names = [word for name in properties for word in ("-p", name)]
    lines = guest.run("systemctl", "show", "tailscope-agent", *names).clean().out.splitlines()
    return dict(line.split("=", 1) for line in lines)


def figures(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def test_the_unit_s_exposure_is_small() -> None:
    """2.0 of 10, as systemd counts; docs/reference/threat-model.md explains each point."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    unit = PACKAGING / "tailscope-agent.service"
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert found, done
    assert float(found[1]) <= 2.0
    # Each setting that is not as it could be has a line in the documentation.
    open_points = re.findall(r"^✗ ([A-Za-z]+=[^ ]*)", done.stdout, re.MULTILINE)
    documented = (ROOT / "docs" / "reference" / "threat-model.md").read_text()
    documented = documented.replace("\\|", "|")  # as cells of tables have it
    assert [point for point in open_points if f"`{point}`" not in documented] == []


def test_the_service_has_what_it_needs_and_no_more(guest: Session) -> None:
    pid = shown(guest, "MainPID")["MainPID"]
    status = guest.shell(f"cat /proc/{pid}/task/*/status").clean().out
    for line in ("CapEff", "CapPrm", "CapBnd"):
        assert {int(held, 16) for held in re.findall(rf"^{line}:\t(\w+)", status, re.M)} == {
            RUNNING
        }
    assert set(re.findall(r"^NoNewPrivs:\t(\d)", status, re.M)) == {"1"}
    assert set(re.findall(r"^Seccomp:\t(\d)", status, re.M)) == {"2"}
    network = "".join(f"readlink /proc/{one}/ns/net\n" for one in (pid, 1))
    own, host = guest.shell(network).clean().out.split()
    assert own != host


def test_a_server_and_a_program_with_the_sdk_are_recorded(guest: Session) -> None:
    script = f"""{FIGURES}
{SERVER}
has '^tailscope_processes 1$'
tailscope-lab load --memcached 127.0.0.1:11300 --closed-loop -c 2 --warmup 0s -d 2s --keys 10 >where
{PROGRAM}
has '^tailscope_span_duration_seconds_count{{span="loop"}} [1-9]'
kill $program $server
has '^tailscope_processes 0$'
figures
"""
    found = figures(guest.shell(script, 120).clean().out)
    by_span = "tailscope_process_span_duration_seconds_count"
    served = [n for name, n in found.items() if name.startswith(by_span) and "recv..send" in name]
    assert sum(served) > 100
    assert found["tailscope_rows_total"] == found["tailscope_spans_total"] > sum(served)


def test_a_reload_loads_other_programs(guest: Session) -> None:
    (guest.share / "agent.toml").write_text(configuration('["sdk"]'))
    script = f"""{FIGURES}
cp /share/agent.toml /etc/tailscope/agent.toml
systemctl reload tailscope-agent
has '^tailscope_config_reloads_total{{result="applied"}} 1$'
grep 'new kernel programs' /run/agent.log
before=$(figures | sed -n 's/^tailscope_rows_total //p')
{PROGRAM}
has '^tailscope_span_duration_seconds_count{{span="loop"}} [1-9]'
kill $program
has '^tailscope_processes 0$'
[ "$(figures | sed -n 's/^tailscope_rows_total //p')" -gt "$before" ]
"""
    guest.shell(script, 120).clean()


def test_it_ends_with_whole_ledgers_that_are_root_s_alone(guest: Session) -> None:
    script = """set -e
systemctl stop tailscope-agent
find /var/lib/tailscope ! -user root >wrong
find /var/lib/tailscope -type d ! -perm 0700 >>wrong
find /var/lib/tailscope -type f ! -perm 0600 >>wrong
cp -r /var/lib/tailscope /share/ledgers
cat wrong
"""
    assert guest.shell(script).clean().out == ""
    how = shown(guest, "Result", "ExecMainStatus", "NRestarts", "ActiveState")
    assert how == {
        "Result": "success",
        "ExecMainStatus": "0",
        "NRestarts": "0",
        "ActiveState": "inactive",
    }
    ledgers = sorted((guest.share / "ledgers").glob("2*"))
    about: list[dict[str, Any]] = [json.loads((one / "ledger.json").read_text()) for one in ledgers]
    assert [one["state"] for one in about] == ["done"] * len(about)
    assert sum(map(ledger.count, ledgers)) == sum(one["rows"] for one in about) > 100
    # Functions of both programs: of the server's own file no symbols are there.
    files = [str(file) for one in ledgers for file in one.glob("_stacks/stacks-*.pq")]
    named = "SELECT DISTINCT parse_filename(module) FROM read_parquet(?) WHERE function <> ''"
    with duckdb.connect() as engine:
        found = {module for (module,) in engine.execute(named, [files]).fetchall()}
    assert {"libevent-2.1.so.7", "loopbench"} <= found
