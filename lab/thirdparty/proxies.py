"""Servers that no test uses and that pass each request on to another server, which takes 2 ms."""

from __future__ import annotations

import os
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from proof.machine import end, until

from thirdparty import built, dns
from thirdparty.known import DOES, Known


class Proxy(Known):
    """A proxy of HTTP with a file that says where its backend is."""

    paths: ClassVar = ("/fast",)

    def start(self) -> None:
        self.start_backend()
        conf = self.folder / "conf"
        conf.write_text(self.conf())
        self.process = self.run(*self.program(conf), env=os.environ | {"HOME": str(self.folder)})

    @abstractmethod
    def conf(self) -> str:
        """What its file says."""

    @abstractmethod
    def program(self, conf: Path) -> Sequence[object]:
        """What starts it, with that file."""


class Caddy(Proxy):
    title = "Caddy"

    def conf(self) -> str:
        options = "{\n admin off\n auto_https off\n}\n"
        proxy = f"reverse_proxy 127.0.0.1:{self.backend_port}"
        return f"{options}http://:{self.port} {{\n {proxy}\n}}\n"

    def program(self, conf: Path) -> Sequence[object]:
        return built.path("caddy"), "run", "--adapter", "caddyfile", "--config", conf


class H2o(Proxy):
    title = "h2o, two threads"

    def conf(self) -> str:
        to = f"http://127.0.0.1:{self.backend_port}/"
        hosts = f'hosts: {{ "default": {{ paths: {{ "/": {{ proxy.reverse.url: "{to}" }} }} }} }}'
        return f"listen: {self.port}\nnum-threads: 2\nuser: root\n{hosts}\n"

    def program(self, conf: Path) -> Sequence[object]:
        return built.path("h2o"), "-c", conf


class Squid(Proxy):
    title = "Squid"

    def conf(self) -> str:
        self.folder.chmod(0o777)  # it gives up being root
        return (
            f"http_port 127.0.0.1:{self.port} accel defaultsite=x\n"
            f"cache_peer 127.0.0.1 parent {self.backend_port} 0 no-query originserver\n"
            "http_access allow all\ncache deny all\naccess_log none\nnetdb_filename none\n"
            f"pid_filename {self.folder}/pid\ncache_log {self.folder}/log\n"
            f"coredump_dir {self.folder}\nvisible_hostname x\nshutdown_lifetime 0 seconds\n"
        )

    def program(self, conf: Path) -> Sequence[object]:
        return built.path("squid"), "-N", "-f", conf


class Haproxy(Proxy):
    title = "HAProxy, two threads"

    def conf(self) -> str:
        times = "".join(f" timeout {what} 60s\n" for what in ("client", "server", "connect"))
        return (
            f"global\n nbthread 2\ndefaults\n mode http\n{times}"
            f"frontend f\n bind 127.0.0.1:{self.port}\n default_backend b\n"
            f"backend b\n http-reuse always\n server s 127.0.0.1:{self.backend_port}\n"
        )

    def program(self, conf: Path) -> Sequence[object]:
        return built.path("haproxy"), "-f", conf


class Lighttpd(Proxy):
    title = "lighttpd, proxy"

    def conf(self) -> str:
        to = f'"host" => "127.0.0.1", "port" => {self.backend_port}'
        return (
            f'server.document-root = "{self.folder}"\nserver.port = {self.port}\n'
            'server.bind = "127.0.0.1"\nserver.max-keep-alive-requests = 1000000\n'
            f'server.modules = ("mod_proxy")\nproxy.server = ("" => (({to})))\n'
        )

    def program(self, conf: Path) -> Sequence[object]:
        return built.path("lighttpd"), "-D", "-f", conf


class Resolver(Known):
    """A DNS server that knows nothing itself."""

    paths: ClassVar = ("/fast",)

    def start(self) -> None:
        _, at_least_ns = DOES["/fast"]
        to = self.stack.enter_context(dns.upstream(at_least_ns / 1e9))
        log = self.stack.enter_context((self.folder / "log").open("wb"))
        command = [str(word) for word in self.program(to)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self.stack.callback(end, self.process)
        until(lambda: dns.ask(self.port, 0.2), f"{command[0]} answers")

    @abstractmethod
    def program(self, upstream: int) -> Sequence[object]:
        """What starts it, with the port of the server that it asks."""

    def offer(self, path: str, seconds: float) -> None:
        dns.load(self.port, seconds, self.RATE, self.connections)


class Dnsmasq(Resolver):
    title = "dnsmasq"

    def program(self, upstream: int) -> Sequence[object]:
        own = (f"--port={self.port}", "--listen-address=127.0.0.1", "--bind-interfaces")
        asks = ("--no-resolv", "--no-hosts", "--cache-size=0", f"--server=127.0.0.1#{upstream}")
        as_root = ("--user=root", f"--pid-file={self.folder}/pid")
        return (
            built.path("dnsmasq"),
            "--keep-in-foreground",
            "-C",
            "/dev/null",
            *own,
            *asks,
            *as_root,
        )


class Unbound(Resolver):
    title = "Unbound, two threads"

    def program(self, upstream: int) -> Sequence[object]:
        conf = self.folder / "conf"
        conf.write_text(
            f'server:\n interface: 127.0.0.1@{self.port}\n username: ""\n chroot: ""\n'
            f' directory: "{self.folder}"\n pidfile: "{self.folder}/pid"\n use-syslog: no\n'
            ' num-threads: 2\n do-not-query-localhost: no\n module-config: "iterator"\n'
            f'forward-zone:\n name: "."\n forward-addr: 127.0.0.1@{upstream}\n'
        )
        return built.path("unbound"), "-d", "-c", conf


PROXIES: dict[str, type[Known]] = {
    "caddy": Caddy,
    "h2o": H2o,
    "squid": Squid,
    "haproxy": Haproxy,
    "lighttpd": Lighttpd,
    "dnsmasq": Dnsmasq,
    "unbound": Unbound,
}
