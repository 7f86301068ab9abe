"""What happens inside a PID namespace of its own, as in a container: `python -m` this module runs
there, prints what it saw as JSON, and ends with all that it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rig import installed, timeline
from rig.agent import Agent, configuration
from rig.processes import Started
from rig.recorder import Recorder
from rig.waiting import until

REQUESTS = 400
#: A namespace of its own, with its own /proc.
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

#: Answers each message with as many bytes, in a thread for each connection.
SERVER = """
import socket, threading
def serve(connection):
    while data := connection.recv(64):
        connection.sendall(data)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    """A command to its end."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **options)


def scenario(name: str, folder: Path, under: tuple[str, ...] = UNSHARE) -> dict[str, Any]:
    """Has one of the functions below happen in a namespace; what it saw."""
    search = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    command = [*under, sys.executable, "-m", "rig.in_pid_namespace", name, folder]
    done = run(*command, env={**os.environ, "PYTHONPATH": search})
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def serving(under: tuple[str, ...] = ()) -> Iterator[tuple[Started, int]]:
    """A small server, and its port."""
    with Started([*under, sys.executable, "-c", SERVER]) as server:
        port = until(lambda: server.out.strip(), "it listens")
        yield server, int(port)


def ask(port: int, requests: int = REQUESTS) -> int:
    """Requests one after the other on two connections; how many were answered."""
    answered = 0
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(requests // 2):
                connection.sendall(b"a request of 24 bytes ..")
                answered += len(connection.recv(64)) == 24
    return answered


def record(folder: Path) -> dict[str, Any]:
    """`record -p`."""
    with serving() as (server, port), Recorder(folder / "ledger", "-p", server.pid) as recorder:
        recorder.ready()
        answered = ask(port)
        recorder.interrupt().clean()
        return {"pid": server.pid, "answered": answered}


def record_further_inside(folder: Path) -> dict[str, Any]:
    """A server in a namespace below the recorder's: it has a number in both."""
    with serving(under=("unshare", "--pid", "--fork", "--kill-child")) as (parent, port):
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        (pid,) = children.read_text().split()
        with Recorder(folder / "ledger", "-p", pid) as recorder:
            recorder.ready()
            answered = ask(port)
            recorder.interrupt().clean()
            parent.stop(signal.SIGKILL)  # unshare ignores SIGTERM
            return {"pid": int(pid), "answered": answered}


def record_command(folder: Path) -> dict[str, Any]:
    """`record -- CMD`, of a program with the SDK, which says how many spans it ran."""
    bench = (installed.LAB / "loopbench", "--seconds", 1, "--think-us", 100)
    with Recorder(folder / "ledger", "--", *bench) as recorder:
        children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children")
        # The first one is the command; others measure page faults before it is started.
        until(lambda: "recording " in recorder.err, "the command runs")
        (pid,) = children.read_text().split()
        ended = recorder.wait(60).clean()
        return {"pid": int(pid), "spans": ended.json()["spans"]}


def top(folder: Path) -> dict[str, Any]:
    """`top --json`, for as long as a client asks."""
    with serving() as (server, port):
        command = [installed.tailscope(), "top", "-p", server.pid, "--json", "--interval", "1s"]
        with Started([*command, "-d", "6s"]) as shown:
            until(lambda: '{"kinds"' in shown.out, "a first picture")
            answered = ask(port)
            pictures = [json.loads(line) for line in shown.wait().clean().out.splitlines()]
    spans = sum(kind["spans"] for kind in pictures[-1]["kinds"])
    return {"answered": answered, "spans": spans}


def flight(folder: Path) -> dict[str, Any]:
    """`timeline`."""
    with serving() as (server, port):
        options = ("-p", server.pid, "--keep", "20s", "--memory", "64MB", "--slow", "1us")
        options += ("--per-minute", 0)
        with timeline.Timeline(folder / "windows", *options) as recorder:
            answered = ask(port)
            recorder.stop().clean()
        (window,) = recorder.windows()
        told = timeline.stories(window, "-n", 1)
        about = timeline.about(window)
        return {
            "pid": server.pid,
            "answered": answered,
            "watched": about["watched"],
            "threads": about["threads"],
            "requests": told["requests"],
            "story": told["stories"][0],
        }


def agent(folder: Path) -> dict[str, Any]:
    """`agent`, with two servers of one name: one that runs before it, one that starts later."""
    name = Path(sys.executable).name[:15]  # as exec has it, the link's own
    config = configuration(folder, f'name = "{name}"', record='spans = ["syscall:ready..send"]')
    with serving() as (_, first), Agent(folder, config) as started:
        before = started.figures()["tailscope_processes"]
        with serving() as (_, second):
            until(lambda: started.figures()["tailscope_processes"] > before, "it is heard of")
            answered = {first: ask(first), second: ask(second, REQUESTS // 2)}
            until(
                lambda: started.figures()["tailscope_spans_total"] >= sum(answered.values()),
                "all spans have come",
            )
            return {"figures": started.figures(), "answered": answered, "name": name}


def observe(folder: Path) -> dict[str, Any]:
    """`observe`: a meter, and who runs on a CPU."""
    with serving() as (server, port):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(server.pid, {cpus[-1]})

        def of(signal: str, *tag: str) -> dict[str, Any]:
            command = [installed.tailscope(), "observe", "--signal", signal, *tag, "--json"]
            with Started([*command, "-d", "2s"], env=os.environ) as observer:
                until(lambda: "observing " in observer.err or not observer.runs, "it observes")
                while observer.runs:
                    ask(port)
                return observer.wait().clean().json()

        waits = of(f"meter:{server.pid}:network")
        runs = of(f"meter:{server.pid}:fault", "--tag", f"running:{cpus[-1]}")
        return {
            "pid": server.pid,
            "grown": waits["rates"][0]["all_per_second"],
            "names": [name for value in runs["by_tag"]["values"] for name in value["names"] or []],
        }


def main() -> None:
    """Runs the function that the command line names."""
    name, folder = sys.argv[1:]
    print(json.dumps(globals()[name](Path(folder))))


if __name__ == "__main__":
    main()
