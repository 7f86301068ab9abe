"""Servers of the JVM whose requests go on in whatever thread is free: event loops, and actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from thirdparty import built
from thirdparty.known import Known, Program
from thirdparty.others import fetched


class OnJvm(Program):
    """A server of `frameworks/jvm`."""

    warm_up_s: ClassVar = 12.0
    main: ClassVar[str]

    def program(self) -> Sequence[object]:
        found = fetched("jvm")
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{found}/classes:{found}/lib/*")
        return built.path("java"), *options, self.main


class Vertx(OnJvm):
    """One event loop."""

    title, main = "Vert.x", "VertxServer"


class ReactorNetty(OnJvm):
    """Event loops, and timers in threads of their own."""

    title, main = "Reactor Netty", "ReactorServer"


class Pekko(OnJvm):
    """Actors: each request passes through several, on the workers of a `ForkJoinPool`."""

    title, main = "Pekko", "PekkoServer"


JVM: dict[str, type[Known]] = {"vertx": Vertx, "reactor-netty": ReactorNetty, "pekko": Pekko}
