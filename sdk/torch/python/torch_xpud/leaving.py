"""What is done before the interpreter ends.

Autograd runs backward passes for a device in a thread of its own. After it has reported a pass as complete, it releases what the pass kept, and takes the
interpreter's lock for that. If the interpreter is being finalised at that moment, the thread ends the process: `terminate called without an active
exception`.

An operator's error is raised when a result is read. A program that ends before that would end as if nothing had happened, so the error is printed.
"""

import atexit
import contextlib
import pathlib
import time

from . import _C

STEP_SECONDS, LONGEST_SECONDS = 0.001, 1.0


def autograd_threads() -> list[str]:
    """The state of each of autograd's threads, as /proc describes them: "S" if it sleeps."""
    states = []
    for path in pathlib.Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended
            stat = path.read_text()  # "17 (pt_autograd_0) S ..."
            if "(pt_autograd" in stat:
                states.append(stat.rpartition(")")[2].split()[0])
    return states


def wait_for_autograd() -> None:
    """Returns when autograd's threads sleep, although they could have the interpreter's lock: then they wait for another pass."""
    asleep = 0
    deadline = time.monotonic() + LONGEST_SECONDS
    while asleep < 3 and time.monotonic() < deadline:
        states = autograd_threads()
        if not states:
            return
        asleep = asleep + 1 if set(states) == {"S"} else 0
        time.sleep(STEP_SECONDS)  # without the lock


def install() -> None:
    atexit.register(_C.report_unread_error)  # runs last: functions run in the reverse order
    atexit.register(wait_for_autograd)
