"""Connects to a recorder's socket and closes, so many times or without end (0): PATH TIMES BEGIN.

Begins when the file BEGIN is there.
"""

import os
import socket
import sys
import time

path, times, begin = sys.argv[1], int(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
while not (os.path.exists(path) and os.path.exists(begin)):
    time.sleep(0.05)
done, told = 0, time.monotonic()
while times == 0 or done < times:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(path)
            done += 1
        except OSError:
            time.sleep(0.001)
    if time.monotonic() > told + 1:
        told = time.monotonic()
        print("so far", done, flush=True)
print("done", done, flush=True)
time.sleep(3600)
