"""`tailscope timeline --events`: fewer events, and still the right story."""

from __future__ import annotations

import os

import pytest
from conftest import Begin
from rig.processes import undisturbed
from rig.servers import fault, load, memcached
from rig.timeline import about, leading
from test_timeline import MEASURED, OTHER, told_of, watch

pytestmark = pytest.mark.skipif(
    not {MEASURED, OTHER} <= os.sched_getaffinity(0), reason="needs two CPUs"
)


@pytest.mark.parametrize("tier", ["scheduler", "requests"])
def test_fewer_events_tell_who_had_the_cpu(timeline: Begin, tier: str) -> None:
    if not undisturbed():
        pytest.skip("real-time priorities are not allowed here")
    hog = ("hog", "--cpu", MEASURED, "--duty", "30%", "--period", "20ms")
    with (
        memcached(MEASURED, under=["chrt", "--fifo", 10]) as server,
        fault(*hog, under=undisturbed()),
        load(server, "--rate", 1000, "-d", "20s", "--cpu", OTHER, under=undisturbed()),
    ):
        recorder = watch(timeline, server, "--slow", "2ms", "--events", tier)
        told = told_of(recorder, 40, "-n", 50)
        recorder.stop().clean()
    firsts = leading(told)
    behind = ("waiting_for_cpu", f"waiting for CPU {MEASURED} behind tailscope-lab")
    assert firsts[behind] >= 0.8 * len(told["stories"]), firsts
    # What was left out is not taken for something that did not happen.
    names = {gap["name"] for story in told["stories"] for gap in story["gaps"]}
    assert not any("in the kernel" in name for name in names), names
    assert not any(story["to_client"] for story in told["stories"])
    assert all(story["from_packet"] == (tier == "requests") for story in told["stories"]), tier
    mechanisms = about(recorder.windows()[-1])["ladder"]
    assert mechanisms["syscall"] == [None, f"--events {tier}"], mechanisms
    assert (mechanisms["tcp"][0] is None) == (tier == "scheduler"), mechanisms
