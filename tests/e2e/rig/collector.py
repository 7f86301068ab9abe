"""An OpenTelemetry collector that keeps what it gets, with TLS or without."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    """Takes spans, or answers what it is told to."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.hold = threading.Event()
        self.hold.set()
        self.scheme = "https" if tls else "http"
        if tls:  # the handshake is made by the thread that answers
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def handle_error(self, *_: object) -> None:
        """A client that hangs up, or refuses the certificate, is what some tests want."""


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.hold.wait(60)
        if self.path == "/v1/traces" and self.server.status == 200:
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
            self.server.headers.append(dict(self.headers))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(collector: Collector) -> Iterator[Collector]:
    """It answers until the end."""
    with collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.hold.set()
            collector.shutdown()
            thread.join()
