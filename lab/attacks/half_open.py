"""Opens connections to a port and sends half of a request on each, without end: FILE (of the port).

Closed ones are opened again.
"""

import contextlib
import socket
import sys
import time
from collections import deque

with open(sys.argv[1]) as file:
    port = int(file.read())
print("ready", flush=True)
held: deque[socket.socket] = deque(maxlen=200)
while True:
    with contextlib.suppress(OSError):
        half = socket.create_connection(("127.0.0.1", port), 1)
        half.sendall(b"GET /metrics HTTP/1.1\r\n")
        held.append(half)
    time.sleep(0.002)
