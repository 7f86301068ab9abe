"""Runs a program so many times, or without end (0), one after the other: TIMES BEGIN PROGRAM…

Begins when the file BEGIN is there.
"""

import os
import subprocess
import sys
import time

times, begin, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
print("ready", flush=True)
while not os.path.exists(begin):
    time.sleep(0.05)
done, told = 0, time.monotonic()
while times == 0 or done < times:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    done += 1
    if time.monotonic() > told + 1:
        told = time.monotonic()
        print("so far", done, flush=True)
print("done", done, flush=True)
time.sleep(3600)
