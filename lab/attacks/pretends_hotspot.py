"""Makes a file of counters as HotSpot does, or a fifo in its place, and cuts it short: KIND NAME.

It cuts the file when a file `begin` is in its folder.
"""

import os
import signal
import struct
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
kind, folder = sys.argv[1], f"/tmp/hsperfdata_{sys.argv[2]}"
os.mkdir(folder, 0o755)
path = f"{folder}/{os.getpid()}"
name = b"sun.test.count\0".ljust(24, b"\0")
entry = struct.pack("<iiiBBBBi", 56, 20, 0, ord("J"), 0, 1, 2, 48) + name + bytes(12)
head = b"\xca\xfe\xc0\xc0\x01\x02\x00\x01" + bytes(16) + struct.pack("<ii", 32, 1)
try:
    if kind == "fifo":
        os.mkfifo(path)
    else:
        with open(path, "wb") as file:
            file.write((head + entry).ljust(32768, b"\0"))
    print("ready", flush=True)
    while not os.path.exists("begin"):
        time.sleep(0.01)
    os.truncate(path, 0)
    time.sleep(3600)
finally:
    os.unlink(path)
    os.rmdir(folder)
