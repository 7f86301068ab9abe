"""What a request of nginx costs that is followed and named: its CPU time, in phases that alternate.

One worker on a CPU of its own, plain and with TLS, and one client on another, which sends the next
request when the answer is there. A phase is a number of requests on one connection. Before each
phase with a recorder the client sends some: so the library for TLS has its probes.

    .venv/bin/python bench/names_cost.py
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import subprocess
import time
from pathlib import Path

from harness import (
    SERVER_CPU,
    SPARE_CPU,
    Bench,
    Recording,
    Result,
    bench,
    cpu_ns,
    lost,
    spread,
    table,
)

REQUEST = b"GET /page/17 HTTP/1.1\r\nHost: bench\r\n\r\n"
END = b"answer"
#: Requests before a phase.
WARM = 200
CONF = """daemon off; pid nginx.pid; error_log stderr; worker_processes 1;
events {{ }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{
    listen {plain}; listen {tls} ssl;
    ssl_certificate cert.pem; ssl_certificate_key key.pem;
    location / {{ return 200 "answer"; }}
  }}
}}
"""
#: Whether requests come over TLS, and how they are recorded; None: not at all.
STATES: dict[str, tuple[bool, list[str] | None]] = {
    "plain, no recorder": (False, None),
    "plain, without names": (False, ["--no-names"]),
    "plain, with names": (False, []),
    "TLS, no recorder": (True, None),
    "TLS, without names": (True, ["--no-names"]),
    "TLS, with --tls-names": (True, ["--tls-names"]),
}


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Server:
    """nginx: a plain port, and one with TLS."""

    def __init__(self, b: Bench) -> None:
        self.ports = {False: free_port(), True: free_port()}
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bench"]
        where = ["-keyout", b.folder / "key.pem", "-out", b.folder / "cert.pem"]
        subprocess.run([*made, *where], check=True, capture_output=True)
        conf = b.folder / "nginx.conf"
        conf.write_text(CONF.format(plain=self.ports[False], tls=self.ports[True]))
        command = ["nginx", "-p", b.folder, "-e", "stderr", "-c", conf]
        self.process = b.start(command, SERVER_CPU, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self.workers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("nginx does not run")
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """The processes that answer."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children]


class Client:
    """One connection."""

    def __init__(self, port: int, tls: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)

    def ask(self, times: int) -> None:
        """Sends this number of requests, one after the other."""
        for _ in range(times):
            self.socket.sendall(REQUEST)
            answer = b""
            while not answer.endswith(END):
                part = self.socket.recv(4096)
                if not part:
                    raise SystemExit("nginx has closed the connection")
                answer += part


def measure(b: Bench, server: Server, state: str, requests: int) -> tuple[float, int]:
    """CPU time of a request in ns, and rows that were lost."""
    tls, options = STATES[state]
    (worker,) = server.workers()
    recording = None
    if options is not None:
        recording = Recording(b, worker, ["--span", "request", *options], SPARE_CPU)
    client = Client(server.ports[tls], tls)
    client.ask(WARM)
    before = cpu_ns(worker)
    client.ask(requests)
    used = (cpu_ns(worker) - before) / requests
    client.socket.close()
    if recording is None:
        return used, 0
    return used, lost(recording.stop())


def main() -> None:
    """Measures, prints, and writes the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="of a phase of each kind")
    parser.add_argument("--requests", type=int, default=5000, help="in a phase")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.requests = 3, 1000
    os.sched_setaffinity(0, {SPARE_CPU})
    result = Result("names_cost", "What a request of nginx costs that is followed and named")
    used: dict[str, list[float]] = {state: [] for state in STATES}
    rows_lost = 0
    with bench() as b:
        server = Server(b)
        for number in range(args.rounds):
            order = list(STATES) if number % 2 else list(STATES)[::-1]
            for state in order:
                ns, gone = measure(b, server, state, args.requests)
                used[state].append(ns)
                rows_lost += gone
    bare = {False: "plain, no recorder", True: "TLS, no recorder"}
    added = {
        state: spread([a - n for a, n in zip(used[state], used[bare[tls]], strict=True)])
        for state, (tls, _) in STATES.items()
    }
    lines = [
        (state, spread(used[state]).text(0), added[state].text(0), added[state].interval(0))
        for state in STATES
    ]
    columns = ("requests", "ns of the worker's CPU a request", "added", "95 % of the median")
    text = f"{args.rounds} rounds of {args.requests} requests; {rows_lost} rows lost"
    result.say("nginx", table(columns, lines) + "\n\n" + text)
    us = {state: f"{of.median / 1000:.1f}" for state, of in added.items()}
    result.summary = (
        f"µs added to a request: plain {us['plain, without names']}, with names "
        f"{us['plain, with names']}; TLS {us['TLS, without names']}, with --tls-names "
        f"{us['TLS, with --tls-names']}"
    )
    result.figures = {state: {"used": used[state], "added": vars(added[state])} for state in STATES}
    if args.quick:
        print(result.summary)
    else:
        result.write()


if __name__ == "__main__":
    main()
