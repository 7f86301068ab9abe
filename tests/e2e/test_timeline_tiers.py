"""`tailscope timeline --events`: fewer events, and still the right story."""

from __future__ import annotations

import os

import pytest
from conftest import Begin
from rig.timeline import about
from test_timeline import MEASURED, OTHER, check_blamed, told_of, watch, with_a_neighbour

pytestmark = pytest.mark.skipif(
    not {MEASURED, OTHER} <= os.sched_getaffinity(0), reason="needs two CPUs"
)


@pytest.mark.measures
@pytest.mark.parametrize("tier", ["scheduler", "requests"])
def test_fewer_events_tell_who_had_the_cpu(timeline: Begin, tier: str) -> None:
    with with_a_neighbour() as server:
        recorder = watch(timeline, server, "--slow", "2ms", "--perfetto", "--events", tier)
        told = told_of(recorder, 40, "-n", 50)
        recorder.stop().clean()
    check_blamed(recorder.windows()[-1], told)
    # What was left out is not taken for something that did not happen.
    names = {gap["name"] for story in told["stories"] for gap in story["gaps"]}
    assert not any("in the kernel" in name for name in names), names
    assert not any(story["to_client"] for story in told["stories"])
    assert all(story["from_packet"] == (tier == "requests") for story in told["stories"]), tier
    mechanisms = about(recorder.windows()[-1])["ladder"]
    assert mechanisms["syscall"] == [None, f"--events {tier}"], mechanisms
    assert (mechanisms["tcp"][0] is None) == (tier == "scheduler"), mechanisms
