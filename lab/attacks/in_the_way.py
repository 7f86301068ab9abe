"""Maps a file as code, and puts a fifo, device or sparse file where the kernel says that it was."""

import mmap
import os
import sys
import time

name = f"code-{os.getpid()}"
with open(name, "wb") as file:
    file.write(bytes(8192))
code = os.open(name, os.O_RDONLY)
held = mmap.mmap(code, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
os.unlink(name)
there = f"{name} (deleted)"
match sys.argv[1]:
    case "fifo":
        os.mkfifo(there)
    case "device":
        os.symlink("/dev/zero", there)
    case "sparse":
        with open(there, "wb"):
            os.truncate(there, 1 << 40)
print("ready", flush=True)
time.sleep(3600)
