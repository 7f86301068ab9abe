"""Does guard lose a request, or execute one twice, while its replicas are killed?

Clients send GETs and POSTs through guard as fast as they are answered. Each second one of the two
replicas is killed (SIGKILL) and started again, and one is stopped for 30 ms. Every ten seconds the
settings are read again, and another guard takes over.

- A replica logs each POST before it answers it (guard_replica.py). So the logs say which POST was
  executed twice, and which one was answered and never executed.
- A GET fails if its answer is not 200, or there is none.
- A POST may fail only if it was in flight when its replica was killed: it was sent before the kill
  was over, its answer came after the kill began, and the answer names that replica.

    .venv/bin/python bench/guard_kills.py
    .venv/bin/python bench/guard_kills.py --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from array import array
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT, Result, at_most, table

sys.path.insert(0, str(ROOT / "lab"))
from proof.ports import answers, free_port

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
SERVER = Path(__file__).with_name("guard_replica.py")
#: How long a replica is stopped, in seconds.
STOP = 0.03
#: Seconds from one hand-over to the next.
HAND_OVER = 10
#: Guard's counts that are reported.
COUNTS = ("hedges_won", "retries_lost", "retries_unsent", "steered", "failed", "timed_out")


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 30
    while not answers(port):
        assert time.monotonic() < until, f"nobody listens on port {port}"
        time.sleep(0.01)


class Replica:
    """A server that can be killed."""

    def __init__(self, stack: ExitStack, folder: Path, name: str) -> None:
        self.port, self.log = free_port(), folder / name
        #: From when to when each kill went on.
        self.kills: list[tuple[float, float]] = []
        self.start()
        stack.callback(lambda: self.process.wait(30))
        stack.callback(lambda: self.process.kill())

    def start(self) -> None:
        command = [sys.executable, "-S", "-E", SERVER, self.port, self.log]
        self.process = subprocess.Popen(list(map(str, command)))
        wait_for_port(self.port)

    def kill(self) -> None:
        before = time.monotonic()
        self.process.kill()
        self.process.wait(30)
        self.kills.append((before, time.monotonic()))

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(STOP)
        os.kill(self.process.pid, signal.SIGCONT)


class Guard:
    """The guard that serves now, and the sums of those before it."""

    def __init__(self, stack: ExitStack, replicas: list[Replica]) -> None:
        self.port, self.admin = free_port(), free_port()
        words = [word for one in replicas for word in ("--replica", f"127.0.0.1:{one.port}")]
        listen = ("--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}")
        self.command = [TAILSCOPE, "guard", *listen, "--quiet", "--threads", 2, *words]
        self.command += ["--budget", "100%", "--grace", "500ms"]
        self.counts: Counter[str] = Counter()
        self.process = self.started()
        stack.callback(lambda: self.process.wait(30))
        stack.callback(lambda: self.process.terminate())
        self.hand_overs = self.reloads = 0

    def started(self, *options: str) -> subprocess.Popen[bytes]:
        command = list(map(str, [*self.command, *options]))
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for_port(self.port)
        return process

    def count(self) -> None:
        """Adds what this guard has counted. Its last requests are not in it."""
        where = f"http://127.0.0.1:{self.admin}/status"
        with urllib.request.urlopen(where, timeout=30) as answer:
            counts = json.load(answer)["counts"]
        self.counts.update({name: counts[name] for name in COUNTS})

    def hand_over(self) -> None:
        self.count()
        before, self.process = self.process, self.started("--take-over")
        assert before.wait(60) == 0, "the guard that handed over has failed"
        self.hand_overs += 1

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)
        self.reloads += 1


@dataclass
class Failed:
    """A request without a good answer."""

    name: str
    sent: float
    ended: float
    why: str


@dataclass
class Load:
    """Clients that each have one request at a time: GET and POST in turns."""

    port: int
    clients: int
    over: bool = False
    gets: int = 0
    posts: int = 0
    #: POSTs that were answered, as `number of the client << 32 | number of the request`.
    done: array[int] = field(default_factory=lambda: array("Q"))
    failed_gets: list[Failed] = field(default_factory=list)
    failed_posts: list[Failed] = field(default_factory=list)

    def run(self) -> None:
        """All clients, until it is over."""

        async def everyone() -> None:
            await asyncio.gather(*(self.client(number) for number in range(self.clients)))

        asyncio.run(everyone())

    async def client(self, number: int) -> None:
        streams = None
        for i in range(1 << 32):
            if self.over:
                break
            is_post, name = i % 2 == 1, f"{number}-{i}"
            request = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len(name)}\r\n\r\n{name}"
            if not is_post:
                request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            sent, why = time.monotonic(), ""
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", self.port)
                streams[1].write(request.encode())
                status, body, closes = await answer(streams[0])
                if status != 200 or body != (name if is_post else "ok"):
                    why = f"{status} {body.strip()}"
            except (OSError, EOFError, ValueError) as e:
                why, closes = repr(e), True
            if streams and closes:
                streams[1].close()
                streams = None
            failed = Failed(name, sent, time.monotonic(), why)
            if is_post:
                self.posts += 1
                self.failed_posts += [failed] if why else []
                if not why:
                    self.done.append(number << 32 | i)
            else:
                self.gets += 1
                self.failed_gets += [failed] if why else []
        if streams:
            streams[1].close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str, bool]:
    """Status, body, and whether the connection is closed after it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split("\r\n")[0])
    body = await reader.readexactly(length)
    return int(head.split()[1]), body.decode(), "connection: close" in head


def strike(replicas: list[Replica], guard: Guard, seconds: float) -> float:
    """Kills, stops, reloads and hand-overs; how long that took."""
    start = time.monotonic()
    turn = 0
    while time.monotonic() < start + seconds:
        replica, other = replicas[turn % 2], replicas[(turn + 1) % 2]
        replica.kill()
        replica.start()
        time.sleep(0.2)
        (replica if turn % 4 < 2 else other).stop()
        if turn % HAND_OVER == HAND_OVER // 2:
            guard.reload()
        if turn % HAND_OVER == HAND_OVER - 1:
            guard.hand_over()
        turn += 1
        time.sleep(max(0.0, start + turn - time.monotonic()))
    return time.monotonic() - start


def was_in_flight(failed: Failed, replicas: list[Replica]) -> bool:
    """Whether a POST was under way at a replica while that was killed."""
    return any(
        failed.sent < over and failed.ended > begun
        for replica in replicas
        if f"127.0.0.1:{replica.port}" in failed.why
        for begun, over in replica.kills
    )


def executed(replicas: list[Replica]) -> Counter[int]:
    """How often each POST was."""
    counts: Counter[int] = Counter()
    for replica in replicas:
        for line in replica.log.read_text().split():
            client, _, number = line.partition("-")
            counts[int(client) << 32 | int(number)] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--no-result", action="store_true", help="write no file")
    arguments = parser.parse_args()
    result = Result("guard_kills", "Requests through guard while its replicas are killed")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailscope-")))
        replicas = [Replica(stack, folder, name) for name in ("first", "second")]
        guard = Guard(stack, replicas)
        load = Load(guard.port, arguments.clients)
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            took = strike(replicas, guard, arguments.seconds)
        finally:
            load.over = True
            thread.join(90)
        guard.count()
        report(result, load, replicas, guard, took)
    if not arguments.no_result:
        result.write()


def report(result: Result, load: Load, replicas: list[Replica], guard: Guard, took: float) -> None:
    """Compares what clients saw with the replicas' logs."""
    counts = executed(replicas)
    twice = sum(count > 1 for count in counts.values())
    lost = sum(name not in counts for name in load.done)
    elsewhere = [one for one in load.failed_posts if not was_in_flight(one, replicas)]
    kills = sum(len(one.kills) for one in replicas)
    result.bars = [
        at_most("GETs that failed", 0, len(load.failed_gets), "", 0),
        at_most("POSTs that failed and were not in flight at a kill", 0, len(elsewhere), "", 0),
        at_most("POSTs that were executed twice", 0, twice, "", 0),
        at_most("answered POSTs that were not executed", 0, lost, "", 0),
    ]
    rows = [
        ("seconds", f"{took:.0f}"),
        ("GETs", f"{load.gets:,}"),
        ("POSTs", f"{load.posts:,}"),
        ("POSTs that failed, in flight at a kill", f"{len(load.failed_posts) - len(elsewhere):,}"),
        ("kills of a replica", f"{kills:,}"),
        ("hand-overs; reloads", f"{guard.hand_overs:,}; {guard.reloads:,}"),
        *((f"guard's count `{name}`", f"{guard.counts[name]:,}") for name in COUNTS),
    ]
    result.say("What was done", table(("what", "count"), rows))
    wrong = [*load.failed_gets, *elsewhere][:10]
    if wrong:
        listed = [(one.name, f"{(one.ended - one.sent) * 1e3:.1f}", one.why) for one in wrong]
        result.say("What failed, the first ten", table(("request", "ms", "answer"), listed))
    result.figures = {"posts": load.posts, "gets": load.gets, "kills": kills, "seconds": took}
    result.summary = (
        f"{kills} kills in {took:.0f} s: {len(load.failed_gets)} of {load.gets:,} GETs failed; of "
        f"{load.posts:,} POSTs {twice} executed twice, {lost} lost"
    )


if __name__ == "__main__":
    main()
