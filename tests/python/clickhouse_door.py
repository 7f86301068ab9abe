"""ClickHouse's HTTP interface in front of chDB, which is ClickHouse's own engine as a library.

No package here has the server, so this is a thin door: it takes statements as ClickHouse's server
takes them over HTTP and hands them, as they are, to the engine, which parses, plans and runs them.
What is not real is the door: one session for everybody, no users, no settings of a single question
but those of `APPLIED`, no compression.

    python clickhouse_door.py      prints its port, and serves until it is ended
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chdb.session import Session

#: Settings of a question that the session takes over; the others are the transport's.
APPLIED = ("join_use_nulls",)
PIECE = 1 << 20


class Door(BaseHTTPRequestHandler):
    """One statement a request: in the address, or as the body; rows to insert are the body."""

    protocol_version = "HTTP/1.1"
    session: Session
    folder: Path
    lock = threading.Lock()

    def do_GET(self) -> None:
        """Run the statement in the address."""
        self.answer()

    def do_POST(self) -> None:
        """Run a statement, or insert the body."""
        self.answer()

    def answer(self) -> None:
        """The engine's bytes, or its error as the server would send it."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        # A thread a connection, for they are kept open; the engine gets one question at a time.
        body = self.folder / str(threading.get_ident())
        self.receive(body)
        statement = given.get("query", "")
        try:
            with self.lock:
                for name in APPLIED:
                    if name in given:
                        self.session.query(f"SET {name} = {int(given[name])}")
            if insert := re.fullmatch(r"(INSERT INTO .*?)\s+FORMAT\s+(\w+)\s*", statement, re.S):
                statement = f"{insert[1]} FROM INFILE '{body}' FORMAT {insert[2]}"
            elif not statement:
                statement = body.read_text()
            with self.lock:
                found = self.session.query(statement, given.get("default_format", "TabSeparated"))
                content = found.bytes() or b""
            self.send(200, content)
        except RuntimeError as error:
            self.send(500, str(error).encode())

    def receive(self, body: Path) -> None:
        """The request's body into a file."""
        with body.open("wb") as file:
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    file.write(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
            else:
                file.write(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def send(self, code: int, content: bytes) -> None:
        """A whole answer."""
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        if code != 200:
            number = re.search(rb"Code: (\d+)", content)
            self.send_header("X-ClickHouse-Exception-Code", number[1].decode() if number else "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Silence."""


def main() -> None:
    """Serve, until SIGTERM ends it and the folder with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="tailscope-clickhouse-") as folder:
        Door.session, Door.folder = Session(), Path(folder)
        with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
            print(server.server_port, flush=True)
            server.serve_forever()


if __name__ == "__main__":
    main()
