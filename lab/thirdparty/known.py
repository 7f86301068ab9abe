"""Servers on runtimes that no test uses, whose requests each do one thing for a time that is known.

`/timer` waits for a timer, `/fast` asks a backend, `/cpu` computes. The share of that time which a
recording has in the right cause is judged by `bench/known_waits.py`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from proof.machine import folder

from thirdparty import built
from thirdparty.behind import Behind
from thirdparty.case import KEPT
from thirdparty.nginx import nginx
from thirdparty.recording import recording

RUNTIMES = built.SOURCES.parent / "runtimes"
#: What a request does, by its path: the causes of that, and for how long at the least, in ns.
DOES = {
    "/timer": (r"sleep", 5_000_000),
    "/fast": (r"downstream", 2_000_000),
    # Some clocks of programs go on while something else has the CPU.
    "/cpu": (r"running|irq|softirq_\w+|fault|steal|preempted", 1_000_000),
}
#: Columns with times that are no causes.
NO_CAUSES = ("start_ns", "wall_ns", "asked_ns", "asked_start_ns")


class Known(Behind):
    """A server with a backend. One kind of request is offered at a time."""

    #: What it can do.
    paths: ClassVar[tuple[str, ...]] = tuple(DOES)
    connections: ClassVar = 8
    RATE: ClassVar = 100.0

    def offer(self, path: str, seconds: float) -> None:
        """Requests of that kind alone."""
        self.rates = {path: self.RATE}  # type: ignore[misc]
        self.load(KEPT, seconds)


class Program(Known):
    """A program that takes its own port and the backend's."""

    #: Words that it takes after these.
    more: ClassVar[tuple[object, ...]] = ()

    def start(self) -> None:
        backend = self.start_backend()
        self.process = self.run(*self.program(), self.port, backend, *self.more)

    @abstractmethod
    def program(self) -> Sequence[object]:
        """What starts the server."""


def compiled(name: str, source: str, *command: object) -> Path:
    """A program of `runtimes/`. In its command, {out} is its place, {at} that of other files."""
    words = [str(word).format(out=built.BUILT / name, at=built.BUILT) for word in command]
    return built.compiled(name, [RUNTIMES / source], [built.path(words[0]), *words[1:]], RUNTIMES)


def engine(pattern: str) -> Path:
    """A program among the packages of `frameworks/engines`."""
    packages = built.BUILT / "frameworks" / "engines" / "node_modules"
    found = sorted(packages.glob(pattern))
    if not found:
        raise built.Lacking(f"there is no {pattern}: scripts/setup --for-servers")
    return found[0]


class Tcl(Program):
    title = "Tcl"

    def program(self) -> Sequence[object]:
        return built.path("tclsh"), RUNTIMES / "server.tcl"


class Twisted(Program):
    title = "Twisted"

    def program(self) -> Sequence[object]:
        return "/usr/bin/python3", RUNTIMES / "twisted_server.py"


class Gevent(Program):
    title = "gevent"

    def program(self) -> Sequence[object]:
        return "/usr/bin/python3", RUNTIMES / "gevent_server.py"


class Mojolicious(Program):
    title = "Mojolicious"
    RATE: ClassVar = 40.0

    def program(self) -> Sequence[object]:
        return built.path("perl"), RUNTIMES / "mojo.pl"


class Select(Program):
    title = "Perl, select"
    RATE: ClassVar = 40.0

    def program(self) -> Sequence[object]:
        return built.path("perl"), RUNTIMES / "select.pl"


class Nim(Program):
    title = "Nim"

    def program(self) -> Sequence[object]:
        options = ("c", "-d:release", "--hints:off", "--nimcache:{at}/nim", "-o:{out}")
        return (compiled("nimserver", "nimserver.nim", "nim", *options, "nimserver.nim"),)


class Warp(Program):
    title = "Haskell, Warp"

    def program(self) -> Sequence[object]:
        options = ("-O1", "-threaded", "-outputdir", "{at}/warp.o", "-o", "{out}")
        return (compiled("warp", "Warp.hs", "ghc", *options, "Warp.hs"),)


class Libevent(Program):
    title = "libevent"

    def program(self) -> Sequence[object]:
        command = ("cc", "-O2", "-o", "{out}", "libevent.c", "-levent")
        return (compiled("libevent", "libevent.c", *command),)


class Asio(Program):
    title = "Asio"
    more: ClassVar = (1,)  # threads

    def program(self) -> Sequence[object]:
        command = ("c++", "-O1", "-std=c++17", "-pthread", "-o", "{out}", "asio.cpp")
        return (compiled("asio", "asio.cpp", *command),)


class AsioThreads(Asio):
    title = "Asio, four threads"
    more: ClassVar = (4,)


class Axum(Program):
    title = "Rust, axum"

    def program(self) -> Sequence[object]:
        folder = RUNTIMES / "axum"
        options = ("--locked", "--quiet", "--path", folder, "--target-dir", built.BUILT / "cargo")
        command = (built.path("cargo"), "install", *options, "--root", built.BUILT / "axum")
        sources = (folder / "Cargo.lock", folder / "src" / "main.rs")
        return (built.compiled("axum/bin/known-axum", sources, command),)


class Puma(Program):
    title = "Ruby, Puma"

    def program(self) -> Sequence[object]:
        return built.path("ruby"), RUNTIMES / "puma_server.rb"


class Lwt(Program):
    title = "OCaml, Lwt"

    def program(self) -> Sequence[object]:
        options = ("ocamlopt", "-thread", "-package", "cohttp-lwt-unix", "-linkpkg", "-o", "{out}")
        # The compiler writes beside its source.
        source = "{at}/lwt_server.ml"
        command = f"cp lwt_server.ml {source} && ocamlfind {' '.join(options)} {source}"
        return (compiled("lwt_server", "lwt_server.ml", "sh", "-c", command),)


class Crystal(Program):
    title = "Crystal"

    def program(self) -> Sequence[object]:
        command = ("crystal", "build", "--release", "-o", "{out}", "crystal_server.cr")
        return (compiled("crystal_server", "crystal_server.cr", *command),)


class Mono(Program):
    title = "C#, Mono"

    def program(self) -> Sequence[object]:
        command = ("mcs", "-r:System.Net.Http.dll", "-out:{out}", "MonoServer.cs")
        return built.path("mono"), compiled("MonoServer.exe", "MonoServer.cs", *command)


class Bun(Program):
    title = "Bun"

    def program(self) -> Sequence[object]:
        return engine("@oven/bun-linux-*/bin/bun"), RUNTIMES / "bun_server.js"


class Deno(Program):
    title = "Deno"

    def program(self) -> Sequence[object]:
        program = engine("@deno/linux-*/deno")
        return program, "run", "--allow-net", RUNTIMES / "deno_server.js"


class NginxLua(Known):
    """Lua in nginx: only timers and the CPU, with nginx's own proxy for the backend."""

    title = "nginx, Lua"

    def start(self) -> None:
        backend = self.start_backend()
        cpu = "local e = os.clock() + 0.001 while os.clock() < e do end"
        lua = f'location /timer {{ content_by_lua_block {{ ngx.sleep(0.005) ngx.say("ok") }} }} \
            location /cpu {{ content_by_lua_block {{ {cpu} ngx.say("ok") }} }}'
        kept = 'proxy_http_version 1.1; proxy_set_header Connection "";'
        upstream = f"upstream up {{ server 127.0.0.1:{backend}; keepalive 32; }}"
        modules = ("ndk_http_module", "ngx_http_lua_module")
        loaded = "".join(f"load_module /usr/lib/nginx/modules/{name}.so; " for name in modules)
        location = f"{lua} location / {{ proxy_pass http://up; {kept} }}"
        self.process = nginx(self, location, upstream, modules=loaded)


KNOWN: dict[str, type[Known]] = {
    "nginx-lua": NginxLua,
    "tcl": Tcl,
    "twisted": Twisted,
    "gevent": Gevent,
    "mojolicious": Mojolicious,
    "perl-select": Select,
    "nim": Nim,
    "warp": Warp,
    "libevent": Libevent,
    "asio": Asio,
    "asio-threads": AsioThreads,
    "axum": Axum,
    "puma": Puma,
    "lwt": Lwt,
    "crystal": Crystal,
    "mono": Mono,
    "bun": Bun,
    "deno": Deno,
}


def added(names: Iterable[str]) -> str:
    """The sum of columns, of which some may be null."""
    return " + ".join(f"coalesce({name}, 0)" for name in names)


@dataclass(frozen=True)
class Shares:
    """How much of what requests of a kind did for a known time was found as what it was."""

    title: str
    path: str
    requests: int
    #: In the right cause, in `unknown`, and in none of the two, as parts of 1.
    found: float
    unknown: float

    @property
    def elsewhere(self) -> float:
        """In the wrong cause."""
        return max(1 - self.found - self.unknown, 0.0)

    def json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self) | {"elsewhere": self.elsewhere}


def shares(
    case: Known, path: str, seconds: float, tailscope: Path, where: Path | None = None
) -> Shares:
    """Records a running case under requests of one kind."""
    case.offer(path, case.warm_up_s)
    with folder() as temporary:
        ledger = (where or temporary) / f"{type(case).__name__}{path.replace('/', '-')}"
        with recording(tailscope, case.pids, ledger, "--span", "request"):
            case.offer(path, seconds)
        return judge(case.title, path, ledger)


def judge(title: str, path: str, ledger: Path) -> Shares:
    """How much of the known time of each request is in its cause, on average."""
    right, least = DOES[path]
    with duckdb.connect() as engine:
        files = {"files": str(ledger / "**" / "*.parquet")}
        rows = "read_parquet($files, hive_partitioning = false)"
        columns = engine.execute(f"DESCRIBE SELECT * FROM {rows}", files).fetchall()
        names = [name for name, *_ in columns if name.endswith("_ns") and name not in NO_CAUSES]
        others = added(names)
        names.append("running_ns")
        cause = added(name for name in names if re.fullmatch(right, name.removesuffix("_ns")))
        count, found, unknown = engine.execute(
            f"SELECT count(*), avg(least({cause}, $least)), avg(least(unknown_ns, $least)) FROM "
            f"(SELECT *, wall_ns - ({others}) AS running_ns FROM {rows})",
            files | {"least": least},
        ).fetchone()  # type: ignore[misc]
    return Shares(title, path, count, (found or 0) / least, (unknown or 0) / least)
