"""tools/soak: clients connect, compute, leave and are killed for a while, and the daemon is sampled.

Every few seconds it is sampled under load, and now and then at rest, when all clients are gone: what it still holds then was not given back.
After the warm-up, lines through the samples at rest must be level."""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

from runner import ROOT

sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402
from trend import Trend, trend_of  # noqa: E402

BINARIES = ROOT / "build/release/bin"
SAMPLE_SECONDS = 3
WARM_UP = 0.25  # part of the samples at rest
REST_LIMIT = 90  # seconds within which the daemon must give everything back: a ticket that nobody takes ends 60 s after its sender
DEADLINE = 120  # maximum seconds of a client
MIB = 1 << 20
# How much the line through the samples at rest may rise from the warm-up to the end. The heap is resident memory that is not shared (the pool's
# is shared). The pool keeps a chunk of the size of large requests, and sometimes one more.
MOST_GROWTH = {"heap_bytes": 4 * MIB, "fds": 2, "threads": 1, "pool_bytes": 128 * MIB}


def field(pid: int, name: str) -> int:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))


def processes(pid: int) -> list[int]:
    """The daemon and its children."""
    children = [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return [pid, *children]


def sample(daemon: Daemon) -> dict[str, float]:
    status = daemon.status()
    everybody = processes(daemon.pid)
    return {
        "rss_bytes": sum(field(pid, "VmRSS") for pid in everybody) * 1024,
        "heap_bytes": sum(field(pid, "RssAnon") for pid in everybody) * 1024,
        "fds": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in everybody),
        "threads": sum(field(pid, "Threads") for pid in everybody),
        "pool_bytes": sum(int(device.get("pool_bytes", 0)) for device in status["devices"]),
        "used_bytes": sum(int(device.get("memory_used_bytes", 0)) for device in status["devices"]),
        "sessions": len(status.get("sessions", [])),
    }


class Doors:
    """Where clients come in, each with a folder in which they pass memory to each other: the daemon's socket, or the doors of so many claims. A claim may
    have more memory than the device, if the daemon has host memory for it."""

    def __init__(self, daemon: Daemon, claims: int, folder: pathlib.Path):
        self._daemon, self._claims, self._folder, self._made = daemon, claims, folder, 0
        self.open: list[tuple[pathlib.Path, pathlib.Path]] = []
        self._make()

    def _make(self) -> None:
        for _ in range(max(1, self._claims)):
            key = f"soak-{self._made}"
            folder = self._folder / key
            (folder / "new").mkdir(parents=True)
            if self._claims:
                self._daemon.ask("claim", "create", key, "--memory", "0..64GiB")
            self.open.append((self._daemon.address.parent / "claims" / key / "xpud.sock" if self._claims else self._daemon.address, folder))
            self._made += 1

    def renew(self) -> None:
        """Others instead: tickets end with their claim. Without claims, nobody takes the old ones any more, and they end by time."""
        if self._claims:
            for _, folder in self.open:
                self._daemon.ask("claim", "delete", folder.name)
        self.open = []
        self._make()


class Crowd:
    """Clients, some of which are killed at a random moment."""

    def __init__(self, daemon: Daemon, size: int, seed: int, doors: "Doors", log):
        self.daemon, self.size, self.doors, self.log = daemon, size, doors, log
        self.random = random.Random(seed)
        self.clients: dict[subprocess.Popen, tuple[float, float | None]] = {}  # start, and time to kill it
        self.ended = collections.Counter()

    def keep_full(self) -> None:
        self.reap()
        now = time.monotonic()
        while len(self.clients) < self.size:
            seed = self.random.randrange(1 << 31)
            door, folder = self.random.choice(self.doors.open)
            client = subprocess.Popen([BINARIES / "stress_client", door, str(seed), folder], stdout=self.log, stderr=self.log)
            # From before it has connected until it has computed for a while.
            kill_at = now + self.random.choice((0.02, 0.3, 3)) * self.random.random() if self.random.random() < 0.4 else None
            self.clients[client] = (now, kill_at)

    def reap(self) -> None:
        now = time.monotonic()
        for client, (began, kill_at) in list(self.clients.items()):
            if client.poll() is not None:
                del self.clients[client]
                self.ended[{0: "left", -9: "killed", 2: "wrong"}.get(client.returncode, "failed")] += 1
            elif kill_at is not None and now >= kill_at:
                client.kill()
            elif now - began > DEADLINE:
                self.ended["stuck"] += 1
                client.kill()

    def send_home(self) -> None:
        """Kills all clients."""
        for client in self.clients:
            client.kill()
        for client in self.clients:
            client.wait()
        self.reap()
        self.doors.renew()


def rest(daemon: Daemon) -> dict[str, float]:
    """Samples the daemon without clients, when it has released all of their resources."""
    limit = time.monotonic() + REST_LIMIT
    while (now := sample(daemon))["sessions"] or now["used_bytes"]:
        if time.monotonic() > limit:
            return now
        time.sleep(0.1)
    time.sleep(0.5)
    return sample(daemon)


def text_of(values: dict[str, float]) -> str:
    return (f"{values['sessions']:4.0f} sessions  {values['rss_bytes'] / MIB:7.1f} MiB resident  {values['heap_bytes'] / MIB:6.1f} MiB heap  {values['fds']:5.0f} fds  {values['threads']:4.0f} threads  "
            f"{values['pool_bytes'] / MIB:7.1f} MiB pool")


def judge(rests: list[tuple[float, dict[str, float]]], ended: collections.Counter) -> tuple[dict[str, Trend], list[str]]:
    """Returns the trends at rest after the warm-up, and the problems."""
    settled = rests[int(len(rests) * WARM_UP):]
    if len(settled) < 3:
        return {}, ["too short: fewer than three samples at rest after the warm-up"]
    trends = {name: trend_of([(at, values[name]) for at, values in settled]) for name in ("rss_bytes", *MOST_GROWTH)}
    wrong = [f"{name} grew by {trends[name].growth:,.0f}; at most {most:,.0f} is allowed" for name, most in MOST_GROWTH.items()
             if trends[name].growth > most]
    left = max((values["used_bytes"] for _, values in rests), default=0)
    if left:
        wrong.append(f"{left:,.0f} bytes were not released within {REST_LIMIT} s")
    if any(values["sessions"] for _, values in rests):
        wrong.append("sessions outlived their clients")
    wrong += [f"{ended[how]} clients: {how}" for how in ("wrong", "failed", "stuck") if ended[how]]
    if not ended["left"] or not ended["killed"]:
        wrong.append("no client ended by itself, or none was killed: the run was too short")
    return trends, wrong


def soak(arguments: argparse.Namespace, daemon: Daemon, crowd: Crowd) -> tuple[list, list]:
    began = time.monotonic()
    end = began + arguments.minutes * 60
    pause = min(60.0, arguments.minutes * 60 / 16)  # between two samples at rest
    samples, rests = [], []
    next_sample, next_rest = began, began + pause
    while (now := time.monotonic()) < end:
        crowd.keep_full()
        if now >= next_sample:
            samples.append((now - began, sample(daemon)))
            next_sample = now + SAMPLE_SECONDS
        if now >= next_rest:
            crowd.send_home()
            rests.append((time.monotonic() - began, rest(daemon)))
            print(f"{rests[-1][0] / 60:6.1f} min  busy: {text_of(samples[-1][1])}\n            rest: {text_of(rests[-1][1])}  {dict(crowd.ended)}",
                  flush=True)
            next_rest = time.monotonic() + pause
        time.sleep(0.02)
    crowd.send_home()
    rests.append((time.monotonic() - began, rest(daemon)))
    return samples, rests


def report(trends: dict[str, Trend], wrong: list[str], ended: collections.Counter) -> None:
    print(f"clients: {', '.join(f'{count} {how}' for how, count in sorted(ended.items()))}")
    for name, trend in trends.items():
        unit, what = (MIB, "MiB") if name.endswith("_bytes") else (1, "")
        print(f"{name:<11} at rest {trend.first / unit:9.2f} -> {trend.last / unit:9.2f} {what:<4} slope {trend.slope * 3600 / unit:+9.3f} {what} an hour")
    print("level: nothing grows" if not wrong else "FAILED: " + "; ".join(wrong), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=50, help="number of concurrent clients")
    parser.add_argument("--executor", choices=("auto", "thread", "process"), default="auto", help="as xpud's option")
    parser.add_argument("--device", default="cpu", help="as xpud's option")
    parser.add_argument("--claims", type=int, default=0, help="clients come in by the doors of so many claims")
    parser.add_argument("--daemon", type=shlex.split, default=[], metavar="OPTIONS",
                        help="start the daemon with these too, as in --daemon='--test-device-memory 512MiB --move-out 8GiB'")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=pathlib.Path, help="also write samples and trends to this file")
    return parser.parse_args()


def build() -> None:
    """Makes the programs, where a fresh clone has none."""
    if not (BINARIES.parent / "build.ninja").exists():
        subprocess.run(["tools/setup"], cwd=ROOT, check=True)
    if not (BINARIES / "stress_client").exists():
        subprocess.run(["cmake", "--build", BINARIES.parent, "--target", "xpud", "xpuctl", "ze_xpud", "stress_client"], cwd=ROOT, check=True)


def main() -> int:
    arguments = parse()
    build()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"{arguments.clients} clients for {arguments.minutes:g} minutes, --seed {seed}", flush=True)
    flags = ("--device", arguments.device, "--executor", arguments.executor, "--log-level", "error", *arguments.daemon)
    with tempfile.TemporaryDirectory(prefix="xpud-soak-") as folder, open(pathlib.Path(folder, "clients"), "w+") as log:
        with contextlib.closing(Daemon(BINARIES, pathlib.Path(folder, "log"), *flags)) as daemon:
            crowd = Crowd(daemon, arguments.clients, seed, Doors(daemon, arguments.claims, pathlib.Path(folder, "doors")), log)
            try:
                samples, rests = soak(arguments, daemon, crowd)
            finally:
                crowd.send_home()
                log.seek(0)
                print("".join(log.readlines()[-20:]), end="")
                print("".join(daemon.log.read_text().splitlines(True)[-20:]), end="")
    trends, wrong = judge(rests, crowd.ended)
    report(trends, wrong, crowd.ended)
    if arguments.json:
        arguments.json.write_text(json.dumps({"arguments": {k: str(v) for k, v in vars(arguments).items()}, "seed": seed, "clients": crowd.ended, "wrong": wrong,
                                              "trends": {name: vars(trend) for name, trend in trends.items()}, "samples": samples, "rests": rests}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
