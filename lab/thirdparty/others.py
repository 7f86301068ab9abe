"""Servers that no test uses: packages and frameworks as their own documentation starts them."""

from __future__ import annotations

import os
from typing import ClassVar

from proof.ports import free_port

from thirdparty import built, client
from thirdparty.behind import Behind
from thirdparty.case import FRESH, Case
from thirdparty.client import Client
from thirdparty.nginx import nginx

FRAMEWORKS = built.SOURCES.parent / "frameworks"
#: Where `lab/thirdparty/frameworks/fetch` puts what it fetches.
FETCHED = built.BUILT / "frameworks"
JARS = ("server", "util", "http", "io")


def fetched(name: str) -> str:
    """A file or folder that was fetched."""
    path = FETCHED / name
    if not path.exists():
        raise built.Lacking(f"{name} was not fetched: scripts/setup --for-servers")
    return str(path)


class Lighttpd(Case):
    """Debian's lighttpd with a file."""

    title = "lighttpd"
    rates: ClassVar = {"/file": 1000}

    def start(self) -> None:
        (self.folder / "file").write_text("an answer\n" * 100)
        (self.folder / "conf").write_text(
            f'server.document-root = "{self.folder}"\nserver.port = {self.port}\n'
            'server.bind = "127.0.0.1"\nserver.max-keep-alive-requests = 1000000\n'
        )
        program = built.path("lighttpd")
        self.process = self.run(program, "-D", "-f", self.folder / "conf")


class Express(Case):
    """Express' first example on Node.js."""

    title = "Express (npm)"

    def start(self) -> None:
        program = f"{fetched('express/node_modules')}/../server.js"
        self.process = self.run(built.path("node"), program, self.port)


class FlaskWaitress(Case):
    """Flask's first example under waitress: a thread reads, others answer."""

    title = "Flask, waitress (PyPI)"

    def start(self) -> None:
        python = fetched("flask/bin/python")
        self.process = self.run(python, FRAMEWORKS / "flask" / "server.py", self.port)


class FastHttp(Case):
    """The first example of fasthttp, a server in Go that is not net/http."""

    title = "fasthttp (Go module)"
    rates: ClassVar = {"/": 1000}

    def start(self) -> None:
        self.process = self.run(fetched("fasthttp"), self.port)


class Jetty(Case):
    """The first example of Debian's Jetty, embedded."""

    title = "Jetty"
    warm_up_s: ClassVar = 3.0

    def start(self) -> None:
        jars = [f"/usr/share/java/jetty9-{name}.jar" for name in JARS]
        path = ":".join([fetched("jetty"), *jars, "/usr/share/java/servlet-api.jar"])
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-cp", path)
        self.process = self.run(built.path("java"), *options, "Hello", self.port)


class PhpFpm(Case):
    """Debian's PHP behind Debian's nginx, which is recorded: a FastCGI connection a request."""

    title = "nginx, PHP-FPM"

    def start(self) -> None:
        back = free_port()
        (self.folder / "index.php").write_text("<?php usleep(1000); echo 'an answer';\n")
        (self.folder / "pool").write_text(
            f"[global]\nerror_log = {self.folder}/fpm\ndaemonize = no\n[www]\nuser = nobody\n"
            f"listen = 127.0.0.1:{back}\npm = static\npm.max_children = 8\n"
        )
        self.run(built.path("php-fpm8.2"), "-R", "-y", self.folder / "pool", port=back)
        script = f"fastcgi_param SCRIPT_FILENAME {self.folder}/index.php;"
        method = "fastcgi_param REQUEST_METHOD $request_method;"
        location = f"location / {{ fastcgi_pass 127.0.0.1:{back}; {script} {method} }}"
        self.process = nginx(self, location)


class Mojolicious(Case):
    """The first example of Mojolicious, in Perl, under its own daemon."""

    title = "Mojolicious (Perl)"
    rates: ClassVar = {"/": 100}

    def start(self) -> None:
        example = 'use Mojolicious::Lite; get "/" => {text => "I ♥ Mojolicious!"}; app->start;'
        environment = os.environ | {"MOJO_MODE": "production", "MOJO_MAX_CLIENTS": "1000"}
        where = ("daemon", "-l", f"http://127.0.0.1:{self.port}", "--requests", 1_000_000_000)
        command = (built.path("perl"), "-Mutf8", "-e", example, *where)
        self.process = self.run(*command, env=environment)


class MemcachedThreads(Case):
    """Debian's memcached with four workers; some requests are sets."""

    title = "memcached, 4 threads"
    RATE = 3000

    def start(self) -> None:
        where = ("-l", "127.0.0.1", "-p", self.port, "-U", 0, "-t", 4, "-u", "nobody")
        self.process = self.run(built.path("memcached"), *where)

    def load(self, mode: str, seconds: float) -> Client:
        fresh = ("--fresh",) if mode == FRESH else ()
        options = ("--rate", self.RATE, "--connections", 16, "--keys", 1, "--set-ratio", 0.1)
        target = f"127.0.0.1:{self.port}"
        words = client.offer("memcached", target, seconds, *options, *fresh)
        return client.run({"get and set": words}, seconds)


class HaProxy(Behind):
    """Debian's HAProxy, which keeps its connections to the backend, with its threads."""

    title = "HAProxy"

    def start(self) -> None:
        backend = self.start_backend()
        timeouts = "".join(f"  timeout {what} 30s\n" for what in ("connect", "client", "server"))
        (self.folder / "conf").write_text(
            f"global\n  nbthread 2\ndefaults\n  mode http\n{timeouts}"
            f"listen all\n  bind 127.0.0.1:{self.port}\n  server one 127.0.0.1:{backend}\n"
        )
        self.process = self.run(built.path("haproxy"), "-db", "-f", self.folder / "conf")


class Varnish(Behind):
    """Debian's Varnish, which asks the backend each time: a thread pool for both sides."""

    title = "Varnish, pass"
    ANSWERS = "pass"

    def start(self) -> None:
        backend = self.start_backend()
        (self.folder / "vcl").write_text(
            f'vcl 4.1; backend default {{ .host = "127.0.0.1"; .port = "{backend}"; }}'
            f"sub vcl_recv {{ return ({self.ANSWERS}); }}"
            "sub vcl_backend_response { set beresp.ttl = 1h; }"
        )
        where = ("-a", f"127.0.0.1:{self.port}", "-n", self.folder / "work")
        self.process = self.run(built.path("varnishd"), "-F", *where, "-f", self.folder / "vcl")


class VarnishHits(Varnish):
    """The same, with all answers from its memory."""

    title = "Varnish, hits"
    ANSWERS = "hash"
    rates: ClassVar = {"/fast": 1000}


class Apache(Case):
    """Debian's Apache with a file: processes of threads (event)."""

    title = "Apache, event"
    rates: ClassVar = {"/file": 1000}

    def start(self) -> None:
        (self.folder / "file").write_text("an answer\n" * 100)
        modules = "".join(
            f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
            for name in ("mpm_event", "authz_core")
        )
        (self.folder / "conf").write_text(
            f"{modules}ServerName localhost\nListen 127.0.0.1:{self.port}\nUser nobody\n"
            f"PidFile {self.folder}/pid\nErrorLog {self.folder}/error\n"
            f"DocumentRoot {self.folder}\nMaxKeepAliveRequests 0\n"
        )
        program = built.path("apache2")
        self.process = self.run(program, "-D", "FOREGROUND", "-f", self.folder / "conf")


#: In the order of the table.
OTHERS: dict[str, type[Case]] = {
    "lighttpd": Lighttpd,
    "express": Express,
    "flask": FlaskWaitress,
    "fasthttp": FastHttp,
    "jetty": Jetty,
    "php-fpm": PhpFpm,
    "mojolicious": Mojolicious,
    "memcached": MemcachedThreads,
    "haproxy": HaProxy,
    "varnish": Varnish,
    "varnish-hits": VarnishHits,
    "apache": Apache,
}
