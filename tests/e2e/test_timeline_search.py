"""`tailscope timeline` on a search server: Lucene, workers and a coordinator that asks them all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Begin
from proof.ports import free_port
from rig import installed
from rig.processes import Started
from rig.servers import Server
from rig.timeline import Story, share_of_others, stories
from rig.waiting import until

CLASSES = installed.ROOT / "target" / "lab" / "search"
LUCENE = installed.ROOT / "target" / "lucene"
WORKERS = 2
#: What the delayed acknowledgement that the struck worker's answers wait for takes at least, in ms.
DELAYED_MS = 35


def java(*words: object) -> list[str]:
    """The lab's search server, as one of its parts."""
    jars = ":".join(str(path) for path in (CLASSES, *sorted(LUCENE.glob("*.jar"))))
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
    return ["java", *options, "-cp", jars, "Search", *map(str, words)]


@pytest.fixture
def index(folder: Path) -> Path:
    """A small corpus, a part for each worker."""
    if not (CLASSES / "Search.class").exists() or not list(LUCENE.glob("*.jar")):
        pytest.skip("the search server is not built: make search fetches Lucene and builds it")
    if not shutil.which("java"):
        pytest.skip("there is no java")
    made = folder / "index"
    words = java("index", made, WORKERS, 2000)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return made


@pytest.fixture
def servers(index: Path, folder: Path) -> Iterator[list[Server]]:
    """The workers, of which the first splits every fourth answer; the coordinator last."""
    with ExitStack() as stack:
        ports = [free_port() for _ in range(WORKERS)]
        started = []
        for number, port in enumerate(ports):
            hazard = "none" if number else "nagle"
            words = java("worker", port, index / str(number), hazard, 4, folder / f"log-{number}")
            started.append(stack.enter_context(Server(port, *words)))
        port = free_port()
        started.append(stack.enter_context(Server(port, *java("coordinator", port, *ports))))
        yield started


def test_an_answer_that_one_worker_of_a_search_server_held_back_is_told_as_that(
    timeline: Begin, servers: list[Server], folder: Path
) -> None:
    page = f"http://127.0.0.1:{servers[-1].port}/"
    load = [installed.FAULTS, "load", "--http", page, "--rate", 100, "-c", 2, "-d", "90s"]
    watched = [word for server in servers for word in ("-p", server.pid)]
    with Started(load):
        recorder = timeline(*watched, "--keep", "5s", "--memory", "64MB")

        def struck() -> list[Story] | None:
            recorder.ask()
            slower = ("--slower", f"{DELAYED_MS}ms", "-n", 1000)
            told = stories(recorder.windows()[-1], *slower)["stories"]
            # What is true the worker writes down itself: from when to when it answered so.
            text = (folder / "log-0").read_text()
            true = [(int(a), int(z)) for a, z in re.findall(r"^(\d+) (\d+) ", text, re.MULTILINE)]
            found = [
                story
                for story in told
                if story["thread"].endswith("/coordinator")
                and share_of_others(story) < 0.25
                and any(
                    a < story["begin_ns"] + story["latency_ns"] and z > story["begin_ns"]
                    for a, z in true
                )
            ]
            return found if len(found) >= 10 else None

        found = until(struck, "ten requests waited for an acknowledgement", 80)
        recorder.stop().clean()
    held = [story for story in found if "kept back by TCP (Nagle)" in story["sentence"]]
    assert len(held) >= 0.9 * len(found), [story["sentence"] for story in found]
    # By way of the worker that held it back.
    name = f"java/worker-{servers[0].port}"
    assert all(f": {name}: " in story["sentence"] for story in held)
