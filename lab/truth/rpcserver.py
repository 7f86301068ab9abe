"""A server of gRPC that sleeps as long as a call says: `rpcserver.py PORT`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent import futures

import grpc

#: Messages of a call that is answered in parts.
PARTS = 5


def once(request: bytes, _context: grpc.ServicerContext) -> bytes:
    """One answer, after so many microseconds."""
    time.sleep(int(request) / 1e6)
    return b"done"


def parts(request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
    """Several, with so many microseconds before each."""
    for _ in range(PARTS):
        time.sleep(int(request) / 1e6)
        yield b"done"


class AnyMethod(grpc.GenericRpcHandler):
    """Methods whose name ends with `Parts` are answered in parts, all others once."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Called for each call."""
        if details.method.endswith("Parts"):
            return grpc.unary_stream_rpc_method_handler(parts)
        return grpc.unary_unary_rpc_method_handler(once)


if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[AnyMethod()])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()
