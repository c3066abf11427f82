"""A client of network_test.py: executes commands line by line, and answers each with a line of JSON."""

import json
import sys
import time

import numpy
import xpud

random = numpy.random.default_rng(0)


def copies(mib: int) -> bool:
    """Uploads and downloads in several sizes."""
    right = True
    for count in (1, 1000, 3 << 16, mib << 18):
        values = random.random(count, dtype=numpy.float32)
        right &= bool((xpud.asarray(values).numpy() == values).all())
    return right


def commands(count: int) -> float:
    """Returns the seconds for many commands without a wait and one read; -1 if the value is wrong."""
    x, one = xpud.asarray(numpy.zeros(64, numpy.float32)), xpud.asarray(numpy.ones(64, numpy.float32))
    (x + one).numpy()
    start = time.perf_counter()
    for _ in range(count):
        x = x + one
    value = float(x.numpy()[0])
    return time.perf_counter() - start if value == count else -1


def read(times: int) -> float:
    """Returns the median seconds for reading a value."""
    x, took = xpud.asarray(numpy.ones(64, numpy.float32)), []
    for _ in range(times):
        start = time.perf_counter()
        (x + x).numpy()
        took.append(time.perf_counter() - start)
    return sorted(took)[times // 2]


for line in sys.stdin:
    work, amount = line.split()
    try:
        answer = {"copies": copies, "commands": commands, "read": read}[work](int(amount))
    except ConnectionError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
