"""Starts threads, forks, becomes other programs and ends, at random. Its status is 42."""

import os
import random
import sys
import threading
import time

chance = random.Random(int(sys.argv[1]))
steps = int(sys.argv[2])


def works(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100))


def step():
    kind = chance.randrange(5)
    if kind == 0:
        threading.Thread(target=works, args=(chance.random() / 100,)).start()
    elif kind == 1:
        threading.Thread(target=works, args=(chance.random() / 100,)).start()
        child = os.fork()
        if child == 0:
            works(chance.random() / 100)
            os._exit(0)
        os.waitpid(child, 0)
    elif kind == 2:
        child = os.fork()
        if child == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.01)"])
        os.waitpid(child, 0)
    elif kind == 3:
        works(chance.random() / 50)
    else:
        time.sleep(chance.random() / 50)


print("ready", flush=True)
for done in range(steps):
    step()
    if chance.randrange(8) == 0 and done + 1 < steps:
        seed, left = str(chance.randrange(1 << 30)), str(steps - done - 1)
        os.execv(sys.executable, [sys.executable, __file__, seed, left])
if chance.randrange(2) == 0:
    os._exit(42)
sys.exit(42)
