"""What becomes of a recording while the wall clock steps, and while the machine is suspended."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from guest import boot
from guest.machine import Machine
from guest.session import Ended, Session
from recording import PATIENCE_MS, Record, Recording
from rig import ledger

#: Naps of a program, one a span; and for how long the machine is suspended, in s.
NAP, ASLEEP = 0.3, 5
NAPPING = f"sleepbench --every 1 --nap-us {NAP * 1e6:g} --seconds 600 >/dev/null & server=$!"
SOURCES = "sdk --span uprobe:sleepbench:work"
#: A machine's whole life: it records, is suspended to memory (ACPI's S3), woken by the alarm of its
#: clock, and records on. What the host shares is a device that it loses meanwhile, so that is put
#: away.
SUSPENDED = f"""
export TAILSCOPE_PATIENCE_MS={PATIENCE_MS}
cd /tmp
{NAPPING}
tailscope record -o ledger -p $server --span {SOURCES} 2>said & recorder=$!
until grep -qs '^recording' said; do kill -0 $recorder || exit 9; usleep 20000; done
clocks() {{
    echo $(cut -d' ' -f1 /proc/uptime) $(sed -n 's/^now at //p' /proc/timer_list) >>/tmp/clocks
}}
sleep 2
driver=/sys/bus/virtio/drivers/9pnet_virtio
umount /share
device=$(cd $driver && echo virtio*)
echo $device >$driver/unbind
echo deep >/sys/power/mem_sleep
echo 0 >/sys/class/rtc/rtc0/wakealarm
echo +{ASLEEP} >/sys/class/rtc/rtc0/wakealarm
clocks
echo mem >/sys/power/state
clocks
sleep 4
kill -INT $recorder
wait $recorder
code=$?
echo $device >$driver/bind
mount -t 9p -o trans=virtio,version=9p2000.L share /share
cp -r ledger clocks said /share
exit $code
"""
SUSPENDED_SECONDS = 180


def ask(recording: Recording, expression: str, where: str = "TRUE") -> float:
    """What SQL says of all spans, by their source."""
    sql = f"SELECT {expression} FROM spans WHERE {where}"
    ((value,),) = ledger.query(recording.ledger, sql)
    return value


def check_naps(recording: Recording, longest: float = NAP * 7) -> None:
    """Every nap took as long as it did on the clock that it was by, from either source: `longest`
    at most, in s."""
    ledger.check_books(recording.ledger)
    for span in ("nap", "work"):
        where = f"span = '{span}'"
        assert ask(recording, "count(*)", where) > 10
        # Emulated, what a nap takes beyond its length can be long. Less is wrong by any measure.
        assert ask(recording, "min(wall_ns)", where) >= NAP * 0.99e9
        # It sleeps from when it has left its CPU: emulated, ms after its timer began.
        assert ask(recording, "min(sleep_ns)", where) >= NAP * 0.9e9
        assert ask(recording, "median(sleep_ns)", where) >= NAP * 0.99e9
        assert ask(recording, "median(wall_ns)", where) < NAP * 2e9
        assert ask(recording, "max(wall_ns)", where) < longest * 1e9


@pytest.mark.more
def test_a_step_of_the_wall_clock_bends_no_span(record: Record, guest: Session) -> None:
    step = "date -s @$(( $(date +%s) {} )) >/dev/null"
    recording = record.server(
        NAPPING,
        SOURCES,
        f"sleep 2; {step.format('+ 3600')}; sleep 2; {step.format('- 7200')}; sleep 2; "
        f"{step.format('+ 3600')}",
    )
    check_naps(recording)
    # On one axis from the first to the last.
    took = ask(recording, "max(start_ns) - min(start_ns)")
    assert 4e9 < took < 60e9
    apart = "SELECT start_ns - lag(start_ns) OVER (ORDER BY start_ns) AS apart FROM spans"
    ((gap,),) = ledger.query(recording.ledger, f"SELECT max(apart) FROM ({apart})")
    assert gap < took / 2
    assert not recording.lost


def can_be_suspended(guest: Session) -> bool:
    """Whether it has a state that it is woken from by its clock."""
    has = "grep -q deep /sys/power/mem_sleep && test -w /sys/class/rtc/rtc0/wakealarm"
    return guest.shell(has).code == 0


@pytest.mark.more
def test_a_suspended_machine_bends_no_span(guest: Session, tmp_path: Path) -> None:
    if not can_be_suspended(guest):
        pytest.skip("this machine can't be suspended, or has no clock that wakes it")
    # One of its own: what it shares with the host goes away meanwhile.
    prepared = boot.prepare(guest.kernel)
    quiet = subprocess.DEVNULL
    with Machine(guest.kernel, prepared, SUSPENDED, tmp_path, stdin=quiet, stdout=quiet) as machine:
        # Not for its end: Linux 6.1, once suspended, does not get to switch the machine off.
        deadline = time.monotonic() + SUSPENDED_SECONDS
        while machine.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert machine.exit_code() == 0, machine.end_of_log()
    recording = Recording(Ended(0, "", ""), tmp_path / "ledger")
    # Time since boot, in s, goes on while a machine sleeps; the monotonic clock, in ns, does not.
    before, after = (line.split() for line in (tmp_path / "clocks").read_text().splitlines())
    awake = (int(after[1]) - int(before[1])) / 1e9
    assert float(after[0]) - float(before[0]) - awake > ASLEEP - 1
    # A nap that the machine was suspended in took its time awake too, which is long when emulated.
    longest = awake + 2 * NAP
    check_naps(recording, longest)
    apart = "SELECT start_ns - lag(start_ns) OVER (ORDER BY start_ns) AS apart FROM spans"
    ((gap,),) = ledger.query(recording.ledger, f"SELECT max(apart) FROM ({apart})")
    assert gap < longest * 1e9
    assert not recording.lost
