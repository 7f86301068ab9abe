"""The servers of the end-to-end tests: what a user has who annotated nothing."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from typing import ClassVar

from proof.machine import LAB, running

from thirdparty import built
from thirdparty.behind import Behind
from thirdparty.case import KEPT, Case
from thirdparty.client import Client
from thirdparty.nginx import nginx
from thirdparty.postgres import PostgresRowLock


class Echo(Case):
    """The path between client and recorder, for the others' verdicts."""

    title = "empty server"
    rates: ClassVar = {"/": 1000}

    def start(self) -> None:
        self.process = self.run(built.echo(), self.port)


class NginxProxy(Behind):
    """Debian's nginx as a reverse proxy that keeps its connections to the upstream."""

    title = "nginx, reverse proxy"

    def start(self) -> None:
        backend = self.start_backend()
        kept = 'proxy_http_version 1.1; proxy_set_header Connection "";'
        location = f"location / {{ proxy_pass http://up; {kept} }}"
        upstream = f"upstream up {{ server 127.0.0.1:{backend}; keepalive 32; }}"
        self.process = nginx(self, location, upstream)


class NginxHogged(Case):
    """Debian's nginx with a file, on a CPU that a hog wants too."""

    title = "nginx, CPU hog"
    rates: ClassVar = {"/": 500}
    CPU = 1

    def start(self) -> None:
        location = 'location / { default_type text/plain; return 200 "an answer\\n"; }'
        self.process = nginx(self, location, cpu=self.CPU)
        hog = (LAB, "hog", "--cpu", self.CPU, "--duty", "30%", "--period", "20ms")
        self.stack.enter_context(running(hog, on=(self.CPU,)))


class AsyncioGateway(Behind):
    """A server on Python's asyncio with a backend."""

    title = "asyncio with a backend"

    def start(self) -> None:
        backend = self.start_backend()
        program = built.SOURCES / "gateway.py"
        self.process = self.run(sys.executable, program, self.port, backend)


class GoGateway(Behind):
    """net/http with a backend."""

    title = "Go net/http with a backend"

    def start(self) -> None:
        backend = self.start_backend()
        self.process = self.run(built.go(), "gateway", self.port, backend)


class GoMutex(Case):
    """net/http whose answers need a mutex."""

    title = "Go with a mutex"
    rates: ClassVar = {"/": 400}

    def start(self) -> None:
        self.process = self.run(built.go(), "mutex", self.port)


class GoWorkers(Case):
    """A server whose answers come from another thread than the one that read the request."""

    title = "Go, answers of another thread"

    def start(self) -> None:
        self.process = self.run(built.go(), "workers", self.port)


class PythonThreads(Case):
    """Python's ThreadingHTTPServer, whose answers are two writes."""

    title = "ThreadingHTTPServer"
    rates: ClassVar = {"/": 60}
    connections: ClassVar = 6

    def start(self) -> None:
        self.process = self.run(sys.executable, built.SOURCES / "threads.py", self.port)


class JavaHttp(Case):
    """com.sun.net.httpserver, whose answers are two writes of a worker."""

    title = "com.sun.net.httpserver"
    rates: ClassVar = {"/": 60}
    connections: ClassVar = 6
    warm_up_s: ClassVar = 3.0

    def start(self) -> None:
        source = built.SOURCES / "Answers.java"
        classes = built.BUILT / "Answers.class"
        built.compiled(classes.name, [source], [built.path("javac"), "-d", built.BUILT, source])
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-cp", built.BUILT)
        self.process = self.run(built.path("java"), *options, "Answers", self.port)


class RedisPipelined(Case):
    """Debian's Redis under redis-benchmark with sixteen requests at once on each connection."""

    title = "redis, pipelined"
    modes: ClassVar = (KEPT,)
    #: Requests a second of run; the benchmark counts, it does not time. The recorder estimates
    #: their number from one receive in 16, and each of these stands for 256 requests. So there are
    #: enough of them that one more or less is far below the bar of 0.5 %.
    REQUESTS = 100_000

    def start(self) -> None:
        command = [built.path("redis-server"), "--bind", "127.0.0.1", "--port", self.port]
        self.process = self.run(*command, "--save", "", "--dir", self.folder)

    def load(self, mode: str, seconds: float) -> Client:
        count = round(self.REQUESTS * seconds)
        command = [built.path("redis-benchmark"), "-p", self.port, "-P", 16, "-n", count]
        command += ["-c", 10, "-t", "get", "--csv"]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=True
        )
        (line,) = csv.DictReader(io.StringIO(done.stdout))
        least, p50, p99 = (
            float(line[f"{name}_latency_ms"]) * 1e6 for name in ("min", "p50", "p99")
        )
        return Client(count, p50, p99, least)


#: In the order of the table.
OWN: dict[str, type[Case]] = {
    "nginx-proxy": NginxProxy,
    "asyncio": AsyncioGateway,
    "go-gateway": GoGateway,
    "python-threads": PythonThreads,
    "java-http": JavaHttp,
    "nginx-hogged": NginxHogged,
    "redis-pipelined": RedisPipelined,
    "go-mutex": GoMutex,
    "postgres-row-lock": PostgresRowLock,
    "go-workers": GoWorkers,
}
