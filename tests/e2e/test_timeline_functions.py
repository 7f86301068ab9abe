"""The functions in the stories of `tailscope timeline`."""

from __future__ import annotations

import pytest
from conftest import Begin
from rig.timeline import leading, stories, ticks
from rig.waiting import until

#: A server that computes a checksum for 30 ms or more at each request, and its client.
COMPUTING = """
import os, socket, time, zlib
zeros = bytes(8 << 20)
def compute():
    until = time.thread_time() + 0.03
    while time.thread_time() < until: zlib.crc32(zeros)
s = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    a, _ = s.accept()
    while a.recv(9):
        compute()
        a.send(b'done')
    os._exit(0)
front = socket.create_connection(s.getsockname())
for _ in range(1000): front.send(b'get'); front.recv(9)
front.close()
"""


@pytest.mark.parametrize("tier", ["scheduler", "all"])
def test_a_thread_that_runs_is_named_with_its_function(timeline: Begin, tier: str) -> None:
    options = ("--keep", "30s", "--memory", "16MB", "--events", tier, "--slow", "20ms")
    recorder = timeline(*options, "--", "python3", "-c", COMPUTING)
    until(recorder.windows, "a slow request has its window", 60)
    (window, *_) = recorder.windows()
    recorder.stop().clean()
    told = stories(window, "-n", 1000)
    firsts = leading(told)
    assert firsts["running", "running"] > len(told["stories"]) / 2, firsts
    ran = [one for one in told["stories"] if one["causes"][0]["kind"] == "running"]
    met = ticks(window, ran)
    if met is None:
        pytest.skip("no tracepoint of the timer's interrupt")
    # The compiler may have put the one function of zlib into the other.
    computing = met["crc32_z"] + met["crc32"] + met["crc32_z.part.0"]
    assert computing > 0.8 * met.total() >= len(ran), met
    assert any(", in crc32" in one["sentence"] for one in ran), ran[0]["sentence"]
