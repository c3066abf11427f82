"""Communication of the demo's processes: a child writes events, one JSON object per line after '@', and reads commands, one per line."""

import json
import os
import queue
import subprocess
import sys
import threading
import time


def emit(event: str, **values) -> None:
    """In a child: reports an event."""
    print("@" + json.dumps({"event": event, **values}), flush=True)


def await_command() -> list[str]:
    """In a child: returns the words of the next command; empty if the parent is gone."""
    return sys.stdin.readline().split()


class Threads:
    """Sets the number of threads of PyTorch's own CPU kernels."""

    def __init__(self, count: int):
        self._count = count

    def apply(self) -> None:
        import torch
        if self._count:
            torch.set_num_threads(self._count)


def await_go() -> Threads | None:
    """In a child: waits for `go THREADS`; returns None if the parent is gone."""
    words = await_command()
    return Threads(int(words[1])) if words else None


class Child:
    """In the parent: a process and its events. Ends with the parent, or by close()."""

    def __init__(self, name: str, command: list, env: dict[str, str] | None = None):
        self.name = name
        self._process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=os.environ | (env or {}), text=True, bufsize=1)
        self._events: queue.Queue[dict | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        for line in self._process.stdout:
            if line.startswith("@"):
                self._events.put(json.loads(line[1:]))
            else:
                print(f"    {self.name}: {line.rstrip()}", flush=True)
        self._events.put(None)

    def send(self, *words) -> None:
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def next_event(self, timeout: float) -> dict | None:
        """Returns the next event, or None after `timeout` seconds. Raises if the child has ended."""
        try:
            event = self._events.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return None
        if event is None:
            raise RuntimeError(f"process '{self.name}' ended early, with status {self._process.wait()}")
        return event

    def expect(self, name: str, timeout: float = 300) -> dict:
        """Waits for the event `name` and drops others."""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            event = self.next_event(left)
            if event and event["event"] == name:
                return event
        raise RuntimeError(f"process '{self.name}' did not report '{name}' within {timeout:.0f} s")

    def close(self) -> None:
        """Closes the child's input, so that it ends by itself."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
