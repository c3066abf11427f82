"""A network with a delay and losses between two network namespaces of this machine, for tests and benchmarks. Needs root and TUN devices."""

import os
import pathlib
import shutil
import subprocess
import time


def why_not() -> str | None:
    """Returns why this machine cannot have one, or None."""
    if os.geteuid() != 0:
        return "root is needed for network namespaces"
    if not pathlib.Path("/dev/net/tun").exists():
        return "the kernel has no TUN devices"
    if shutil.which("ip") is None:
        return "the command ip is missing (Debian: apt-get install iproute2)"
    made = subprocess.run(["ip", "netns", "add", f"xpud-try-{os.getpid()}"], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", f"xpud-try-{os.getpid()}"], check=True)
    return None if made.returncode == 0 else f"ip netns add: {made.stderr.decode().strip()}"


class Network:
    """The namespaces `here` and `there`; a packet takes half of `rtt_ms` each way."""

    THERE = "10.77.0.1"

    def __init__(self, binaries: pathlib.Path, rtt_ms: float, loss_percent: float = 0):
        tag = f"{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self._names = {"here": f"xpud-{tag}-h", "there": f"xpud-{tag}-t"}
        devices = {"here": f"xh{os.getpid() % 10**7}", "there": f"xt{os.getpid() % 10**7}"}
        self._devices = devices
        self._line = subprocess.Popen([binaries / "delay_line", devices["here"], devices["there"], str(round(rtt_ms * 500)), str(loss_percent)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line.stdout.readline() != "ready\n":
            raise RuntimeError("the delay line did not start")
        for side, address in (("here", "10.77.0.2"), ("there", self.THERE)):
            name, device = self._names[side], devices[side]
            self._ip("netns", "add", name)
            self._ip("link", "set", device, "netns", name)
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            for each in (device, "lo"):
                self._ip("-n", name, "link", "set", each, "up")

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    def within(self, side: str) -> list[str]:
        """Returns the start of a command line that runs a command there."""
        return ["ip", "netns", "exec", self._names[side]]

    def set_up(self, up: bool) -> None:
        """Blocks or passes all packets. The ends are not notified."""
        self._ip("-n", self._names["there"], "link", "set", self._devices["there"], "up" if up else "down")

    def close(self) -> None:
        self._line.communicate(timeout=10)
        for name in self._names.values():
            self._ip("netns", "del", name)
