"""`--span request --tls-names`: names of requests that come over TLS, with real servers."""

from __future__ import annotations

import http.client
import socket
import ssl
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import ledger
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.streams import STREAMS, asking
from rig.streams import ask as ask_streams
from rig.waiting import until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONNECTIONS = 20
#: Of a connection, one after the other.
PATHS = ("/a", "/page/17", "/a", "/search?q=secret")
NAMES = Counter({"GET /a": 40, "GET /page/{id}": 20, "GET /search": 20})

NGINX = """daemon off; pid nginx.pid; error_log stderr; worker_processes 1;
events {{ }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols {protocol};
    location / {{ return 200 "done"; }}
  }}
}}
"""

PYTHON = """
import http.server, os, ssl
os.chdir(os.path.dirname(os.path.abspath(__file__)))
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", {port}), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

NODE = """
const https = require("https"), fs = require("fs");
const files = {{ key: fs.readFileSync("key.pem"), cert: fs.readFileSync("cert.pem") }};
https.createServer(files, (request, answer) => answer.end("done")).listen({port}, "127.0.0.1");
"""


@dataclass(frozen=True)
class Kind:
    """A server: its file's name, what is in it, and how it is started."""

    file: str
    text: str
    command: tuple[str, ...]

    def prepare(self, folder: Path, port: int, protocol: str = "TLSv1.3") -> None:
        """Writes its files: a certificate of its own, and what it is to do."""
        made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
        where = ["-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run(
            ["openssl", *made, *where], cwd=folder, check=True, capture_output=True, timeout=60
        )
        (folder / self.file).write_text(self.text.format(port=port, protocol=protocol))


KINDS = {
    "nginx": Kind("nginx.conf", NGINX, ("nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf")),
    "python": Kind("server.py", PYTHON, (sys.executable, "server.py")),
    "node": Kind("server.js", NODE, ("node", "server.js")),
}


def ask(port: int, protocol: ssl.TLSVersion) -> None:
    """One connection, and all of its requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = protocol
    client = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    for path in PATHS:
        client.request("GET", path, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        assert client.getresponse().read() == b"done"
    client.close()


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [("nginx", "TLSv1.3"), ("nginx", "TLSv1.2"), ("python", "TLSv1.3"), ("node", "TLSv1.3")],
)
def test_every_request_has_its_name_and_handshakes_are_none(
    kind: str, protocol: str, record: Callable[..., Recorder], folder: Path
) -> None:
    """What is decrypted has the name. A handshake before the first of it counts as a request."""
    port = free_port()
    KINDS[kind].prepare(folder, port, protocol)
    with Started(KINDS[kind].command, cwd=folder) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        recorder = record(
            "--span", "request", "--tls-names", "--traceparent", "-p", server.pid
        ).ready()
        for _ in range(CONNECTIONS):
            ask(port, ssl.TLSVersion[protocol.replace(".", "_")])
        recorder.interrupt().clean()
    found = ledger.count_by_span(folder / "ledger")
    handshakes = found.pop("request", 0)
    assert found == dict(NAMES)
    traced = ledger.query(
        folder / "ledger",
        "SELECT count(*), count(trace_high), min(trace_high) = max(trace_high) FROM spans "
        "WHERE span <> 'request'",
    )
    assert traced == [(NAMES.total(), NAMES.total(), True)], traced
    uncovered = about(folder / "ledger")["uncovered"]
    assert handshakes <= 2, (handshakes, uncovered)
    assert uncovered["encrypted"] == handshakes, uncovered
    assert handshakes + uncovered["handshakes"] >= CONNECTIONS, uncovered
    files = [path for path in (folder / "ledger").rglob("*") if path.is_file()]
    assert not any(b"secret" in path.read_bytes() for path in files)


def test_a_library_that_is_mapped_later_is_found_when_requests_come(
    record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    KINDS["python"].prepare(folder, port)
    recorder = record(
        "--span", "request", "--tls-names", "--", sys.executable, folder / "server.py"
    )
    until(lambda: answers(port) or not recorder.runs, "the server serves its port")

    (server,) = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()

    def is_probed() -> bool:  # the kernel maps what it steps through
        ask(port, ssl.TLSVersion.TLSv1_3)
        return "[uprobes]" in Path(f"/proc/{server}/maps").read_text()

    until(is_probed, "the library has probes")
    for _ in range(2 * CONNECTIONS):
        ask(port, ssl.TLSVersion.TLSv1_3)
    recorder.interrupt()
    found = Counter(ledger.count_by_span(folder / "ledger"))
    unnamed = found.pop("request")
    # The first of them may have come before the last of the probes.
    assert found >= NAMES, (found, unnamed)
    assert set(found) == set(NAMES), found


NGINX_HTTP2 = NGINX.replace(" ssl;", " ssl http2;", 1)
HTTP2 = {
    "nginx": replace(KINDS["nginx"], text=NGINX_HTTP2),
    "node": Kind("none", "", ("node", str(STREAMS), "serve", "{port}")),
}


@pytest.mark.parametrize("kind", HTTP2)
def test_streams_of_http2_inside_of_tls_are_requests_with_names(
    kind: str, record: Callable[..., Recorder], folder: Path
) -> None:
    """Followed from the moment when the recorder says so: then each request has a row."""
    port = free_port()
    HTTP2[kind].prepare(folder, port, "TLSv1.3")
    command = [part.format(port=port) for part in HTTP2[kind].command]
    with Started(command, cwd=folder) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        recorder = record("--span", "request", "--tls-names", "-p", server.pid).ready()
        with asking(port, folder) as client:

            def is_followed() -> bool:
                ask_streams(client, "4 2 GET /before?ms=0 0")
                return "they are followed from now on" in recorder.err

            until(is_followed, "HTTP/2 inside of TLS is followed")
            took = ask_streams(client, "100 4 GET /users/17?ms=3 0")
            ask_streams(client, "20 2 GET /page?secret=1 0")
        recorder.interrupt().clean()
    found = Counter(ledger.count_by_span(folder / "ledger"))
    assert (found["GET /users/{id}"], found["GET /page"]) == (100, 20), found
    assert set(found) <= {"GET /users/{id}", "GET /page", "GET /before", "request"}, found
    assert found["request"] <= 2, found  # handshakes before the first that was decrypted
    walls = ledger.query(
        folder / "ledger",
        "SELECT min(wall_ns) / 1e6, median(wall_ns) / 1e6 FROM spans "
        "WHERE span = 'GET /users/{id}'",
    )
    least = 2 if kind == "node" else 0  # nginx does not sleep
    assert least <= walls[0][0] <= walls[0][1] <= statistics.median(took), (walls, took)


def test_a_program_without_such_a_library_is_told(
    record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    code = (
        "import socket\n"
        f"server = socket.create_server(('127.0.0.1', {port}))\n"
        "while True:\n"
        "    client = server.accept()[0]\n"
        "    while client.recv(4096):\n"
        "        client.sendall(b'done')\n"
    )
    with Started([sys.executable, "-c", code]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        recorder = record("--span", "request", "--tls-names", "-p", server.pid).ready()
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(10):
                client.sendall(b"\x16\x03\x01\x00\x05hello")
                assert client.recv(64) == b"done"
        notice = "over TLS get no names: it has no function SSL_read"
        until(lambda: notice in recorder.err, "the recorder says so")
        recorder.interrupt().clean()
    assert ledger.count_by_span(folder / "ledger") == {"request": 10}
