"""Guard as systemd's units run it: without capabilities, beside a process that sees the hazards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest
from guest import ROOT, Unavailable, boot
from guest.kernels import KERNELS
from guest.session import Session

PACKAGING = ROOT / "packaging"
#: By capabilities(7): DAC_READ_SEARCH, SYS_PTRACE, PERFMON, BPF.
RUNNING = sum(1 << number for number in (2, 19, 38, 39))
#: The installation that the unit's own first lines describe, and two replicas.
INSTALL = """set -e
cp /bin/tailscope /usr/bin/tailscope
echo tailscope-guard:x:900:900::/nonexistent:/bin/false >>/etc/passwd
echo tailscope-guard:x:900: >>/etc/group
mkdir -p /etc/tailscope-guard /www
cp /share/guard.toml /etc/tailscope-guard/
(umask 077; head -c 32 /dev/urandom | base64 >/etc/tailscope-guard/hazards.key)
chgrp tailscope-guard /etc/tailscope-guard/hazards.key && chmod g+r /etc/tailscope-guard/hazards.key
cp /share/tailscope-guard.service /share/tailscope-hazards.service /etc/systemd/system/
for unit in guard hazards; do
    mkdir -p /etc/systemd/system/tailscope-$unit.service.d
    # There is no journal in the guest.
    printf '[Service]\\nStandardOutput=append:/run/%s.log\\nStandardError=append:/run/%s.log\\n' \\
        $unit $unit >/etc/systemd/system/tailscope-$unit.service.d/log.conf
done
echo answer >/www/index.html
for port in 8081 8082; do
    setsid su -s /bin/sh nobody -c "exec httpd -f -p 127.0.0.1:$port -h /www" &
    echo $! >/run/replica-$port
    for try in $(seq 300); do
        wget -q -O /dev/null http://127.0.0.1:$port/index.html && break
        usleep 100000
    done
done
systemctl daemon-reload
systemctl start tailscope-guard || { cat /run/guard.log /run/hazards.log >&2; exit 9; }
systemctl is-active tailscope-guard tailscope-hazards
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A guest whose first process is systemd, with guard in front of two replicas."""
    kernel = KERNELS["6.1"]
    share = tmp_path_factory.mktemp("share")
    for name in ("tailscope-guard.service", "tailscope-hazards.service", "guard.toml"):
        shutil.copy(PACKAGING / name, share)
    try:
        session = Session(kernel, boot.prepare(kernel), share, with_systemd=True)
    except Unavailable as reason:
        pytest.skip(f"no guest with systemd: {reason}")
    with session:
        assert session.shell(INSTALL, 90).clean().out.split() == ["active", "active"]
        yield session


def held(guest: Session, unit: str) -> list[int]:
    """The capabilities of each of a service's threads, as masks."""
    shown = guest.run("systemctl", "show", unit, "-p", "MainPID").clean().out
    status = guest.shell(f"cat /proc/{shown.strip().partition('=')[2]}/task/*/status").clean().out
    assert set(re.findall(r"^NoNewPrivs:\t(\d)", status, re.MULTILINE)) == {"1"}
    assert set(re.findall(r"^Seccomp:\t(\d)", status, re.MULTILINE)) == {"2"}
    return [int(mask, 16) for mask in re.findall(r"^CapPrm:\t(\w+)", status, re.MULTILINE)]


def test_only_the_thread_that_sees_the_hazards_has_capabilities(guest: Session) -> None:
    assert set(held(guest, "tailscope-guard")) == {0}
    assert sorted(held(guest, "tailscope-hazards"))[-2:] == [0, RUNNING]


def test_a_stop_is_seen_and_steered_around(guest: Session) -> None:
    script = """
status() { tailscope guard status --json; }
has() {
    for try in $(seq 300); do
        status | grep -q "$1" && return
        usleep 100000
    done
    echo "never: $1" >&2; status >&2; cat /run/guard.log /run/hazards.log >&2; exit 9
}
has '"signals": "kernel"'
replica=$(cat /run/replica-8081)
kill -STOP $replica
has '"stopped"$'
for request in $(seq 20); do
    wget -q -O - http://127.0.0.1:8080/index.html || exit 8
done >got
[ "$(sort -u got)" = answer ] || exit 7
status
kill -CONT $replica
"""
    status = json.loads(guest.shell(script, 120).clean().out)
    first, second = status["replicas"]
    assert first["signals_from"] == second["signals_from"] == "127.0.0.1:9747"
    assert (first["signals"], first["hazards"]) == ("kernel", ["stopped"])
    assert status["counts"]["steered"] >= 10


def test_both_end_together(guest: Session) -> None:
    script = """systemctl stop tailscope-guard
for try in $(seq 300); do
    [ "$(systemctl is-active tailscope-hazards)" = inactive ] && break
    usleep 100000
done
systemctl show tailscope-guard tailscope-hazards -p ActiveState -p Result -p NRestarts
"""
    assert sorted(guest.shell(script, 60).clean().out.split()) == sorted(
        ["ActiveState=inactive", "Result=success", "NRestarts=0"] * 2
    )
