"""Clients of a guard that ask without a pause."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rig.guard import Guard, Replica, ask
from rig.waiting import until


class Load:
    """Clients that ask over and over, each on a connection of its own while that is kept open.

    `posts`: every other request is a POST. `may`: what a POST may get besides its body. `path`: of
    the GETs.
    """

    def __init__(
        self,
        guard: Guard,
        clients: int = 4,
        *,
        posts: bool = True,
        may: tuple[int, ...] = (),
        path: str = "/",
    ) -> None:
        self.port, self.posts, self.may, self.path = guard.port, posts, may, path
        self.over, self.answered = threading.Event(), 0
        #: Bodies of the POSTs that were answered with 200.
        self.done: list[str] = []
        self.pool = ThreadPoolExecutor()
        self.clients = [self.pool.submit(self.client, number) for number in range(clients)]

    def client(self, number: int) -> list[object]:
        """What went wrong."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        wrong: list[object] = []
        for i in range(1 << 30):
            if self.over.is_set():
                break
            name, posts = f"{number}-{i}", self.posts and i % 2
            try:
                if posts:
                    answer = ask(connection, "POST", "/", name)
                    right = answer == (200, name) or answer[0] in self.may
                else:
                    answer = ask(connection, "GET", self.path)
                    right = answer[0] == 200
            except (OSError, http.client.HTTPException) as e:
                answer, right = (0, repr(e)), False
                connection.close()
            if posts and answer[0] == 200:
                self.done.append(name)
            if not right:
                wrong.append((name, answer))
            self.answered += 1
        return wrong

    def goes_on(self) -> None:
        """Waits until some more were answered."""
        before = self.answered
        until(lambda: self.answered > before + 20, "the load goes on")

    def __enter__(self) -> Load:
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.pool.shutdown()

    def wrong(self) -> list[object]:
        self.over.set()
        return [one for client in self.clients for one in client.result()]

    def executed_once(self, replicas: Sequence[Replica]) -> None:
        """Fails if a POST was executed twice, or one that was answered was not executed."""
        all_lines = (line for one in replicas for line in one.executed())
        executed = Counter(line[5:] for line in all_lines if line.startswith("POST "))
        assert max(executed.values()) == 1
        assert self.done and set(self.done) <= set(executed)
