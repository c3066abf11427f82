"""Memory beyond the device, beside a device with room. A second daemon says that the same device has 16 GiB (`--test-device-memory`), and moves what has no
room to the host. Four programs of 7 GiB at work at once; one of 24 GiB; the first answer of 14 GiB that another program had pushed out. And eight programs
that load the same, beside a daemon that merges nothing. Every result is compared.
"""

import json
import os
import pathlib
import statistics
import subprocess
import time

import rows
import sides
import workers
from channel import Child

from daemon import Daemon

GIB = 16 if rows.SMOKE else 1024  # MiB
DEVICE, HOST = 16 * GIB, 64 * GIB
ROUNDS, WARM, LENGTH = (1, 0.2, 0.5) if rows.SMOKE else (2, 6.0, 6.0)
LINK = 54e9  # bytes/s of a GPU's link to the host


class Side:
    """A daemon's programs, each with a claim of its own."""

    def __init__(self, name: str, address: pathlib.Path):
        self.name = name
        self.address = address
        self._programs: list[Child] = []

    def xpuctl(self, *arguments: str) -> str:
        command = [pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "xpuctl", "--address", self.address, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(self, mib: int, most: str = "") -> Child:
        """`most`: of the device's memory, as a claim says it."""
        key = f"memory-{len(self._programs)}"
        self.xpuctl("claim", "create", key, *(("--memory", most) if most else ()))
        door = {"XPUD_ADDRESS": str(self.address.parent / "claims" / key / "xpud.sock")}
        program = workers.start(f"{key}, {self.name}", "xpud", door, "layers.py")
        self._programs.append(program)
        program.expect("ready", 60)
        program.send("open", mib)
        program.expect("opened", 120)
        return program

    def close(self) -> None:
        for number, program in enumerate(self._programs):
            program.close()
            self.xpuctl("claim", "delete", f"memory-{number}")
        self._programs = []


def windows(programs: list[Child], length: float) -> tuple[float, float]:
    """Returns the forwards/s of all together, and the longest time from one end to the next."""
    at = time.perf_counter() + 0.2
    for program in programs:
        program.send("window", at, length)
    rate, longest = 0.0, 0.0
    for program in programs:
        event = program.expect("done", 120)
        if event["wrong"]:
            raise RuntimeError(f"{event['wrong']} of {len(event['ends'])} results of {program.name} were wrong")
        ends = [at, *event["ends"]]
        longest = max(longest, *(end - before for before, end in zip(ends, ends[1:])))
        rate += len(event["ends"]) / (ends[-1] - at)
    return rate, longest


def forward_seconds(program: Child, length: float) -> float:
    return 1 / windows([program], length)[0]


def at_work(room: Side, full: Side) -> None:
    """Four programs that do not fit together."""
    programs = {side: [side.start(7 * GIB) for _ in range(4)] for side in (room, full)}
    rates: dict[Side, list[float]] = {room: [], full: []}
    longest: dict[Side, list[float]] = {room: [], full: []}
    windows(programs[full], WARM)  # the host's memory is taken
    for _ in range(ROUNDS):
        rows.canary()
        for side in (room, full):
            rate, wait = windows(programs[side], LENGTH)
            rates[side].append(rate)
            longest[side].append(wait)
    print(full.xpuctl("memory"), flush=True)
    what = "four programs of 7 GiB at work on 16 GiB"
    rows.emit(f"{what}, all", statistics.median(rates[full]), "forwards/s", "with room", statistics.median(rates[room]), sides.target("ratio >= 0.9"))
    rows.emit(f"{what}, longest forward", max(longest[full]), "s", "with room", max(longest[room]), sides.target("value <= 1"))
    for side in (room, full):
        side.close()


def offloaded(mib: int) -> float:
    """Seconds of a forward in plain PyTorch whose weights come from the host each time."""
    plain = workers.start("plain", "plain", program="layers.py")
    plain.expect("ready", 60)
    plain.send("offloaded", mib, 1 if rows.SMOKE else 3)
    seconds = statistics.median(plain.expect("done", 120)["seconds"])
    plain.close()
    return seconds


def larger(room: Side, full: Side) -> None:
    """A program that is larger than the device."""
    mib = 24 * GIB
    here, there = full.start(mib, f"0..{2 * mib}MiB"), room.start(mib)
    windows([here], WARM / 2)
    computing, seconds = forward_seconds(there, LENGTH / 2), forward_seconds(here, LENGTH / 2)
    best = max(computing, mib * 2**20 / 3 / LINK)
    print(full.xpuctl("memory"), flush=True)
    rows.emit("24 GiB on 16 GiB, a forward", seconds, "s", "computing, or a third of the weights at 54 GB/s", best, sides.target("ratio <= 1.2"))
    rows.emit("24 GiB on 16 GiB, a forward", seconds, "s", "weights from the host each time, " + sides.PLAIN_NAME, offloaded(mib))
    for side in (room, full):
        side.close()


def first_answer(full: Side) -> None:
    resident, returned = [], []
    program = full.start(14 * GIB)
    for _ in range(ROUNDS + 1):
        resident.append(forward_seconds(program, LENGTH / 8))
        other = full.start(14 * GIB)
        windows([other], LENGTH / 8)
        other.close()
        time.sleep(1)  # there is room again, but nobody needs it
        returned.append(windows([program], 0)[1])
    rows.emit("first answer of 14 GiB that had to leave", statistics.median(returned), "s", "on the device", statistics.median(resident),
              sides.target("excess <= 0.33"))
    full.close()


def on_device_mib(side: Side) -> float:
    """What the chunks of all tenants take."""
    return int(json.loads(side.xpuctl("memory", "-o", "json"))["devices"][0]["on_device_bytes"]) / 2**20


def load_at_once(side: Side) -> tuple[float, float, float]:
    """Eight programs of one tenant load the same 1 GiB. Returns the seconds of the last one, and the device memory in the end and at most, in MiB."""
    programs = [workers.start(f"loader {i}, {side.name}", "xpud", {"XPUD_ADDRESS": str(side.address)}, "layers.py") for i in range(8)]
    for program in programs:
        program.expect("ready", 60)
        program.send("prepare", GIB)
    for program in programs:
        program.expect("prepared", 120)
    before = on_device_mib(side)
    at = time.perf_counter() + 0.2
    for program in programs:
        program.send("load", at)
    taken, loaded = [], []
    while len(loaded) < len(programs):
        taken.append(on_device_mib(side) - before)
        if event := programs[len(loaded)].next_event(0.02):
            loaded.append(event)
    if wrong := sum(event["wrong"] for event in loaded):
        raise RuntimeError(f"{wrong} tensors were wrong")
    for program in programs:
        program.close()
    return max(event["seconds"] for event in loaded), taken[-1], max(taken)


def equal_uploads(merging: Side, apart: Side) -> None:
    seconds: dict[Side, list[float]] = {merging: [], apart: []}
    last: dict[Side, list[float]] = {merging: [], apart: []}
    most: dict[Side, list[float]] = {merging: [], apart: []}
    for turn in range(ROUNDS):
        rows.canary()
        for side in (merging, apart) if turn % 2 == 0 else (apart, merging):
            taken = load_at_once(side)
            for of, value in zip((seconds, last, most), taken):
                of[side].append(value)
    what = "eight programs load the same 1 GiB"
    rows.emit(f"{what}: device memory", statistics.median(last[merging]), "MiB", "--merge off", statistics.median(last[apart]), sides.target("value <= 1216"))
    rows.emit(f"{what}: at most", statistics.median(most[merging]), "MiB", "--merge off", statistics.median(most[apart]), sides.target("value <= 1536"))
    rows.emit(f"{what}: time", statistics.median(seconds[merging]), "s", "--merge off", statistics.median(seconds[apart]), sides.target("ratio <= 1.05"))


def other_daemon(name: str, *options: str) -> tuple[Side, Daemon]:
    log = pathlib.Path(os.environ["XPUD_BENCH_LOGS"]) / f"bench-gpu-memory-{name}.log"
    daemon = Daemon(pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]), log, "--device", sides.PLAIN, *options)
    return Side(name, daemon.address), daemon


def main() -> None:
    room = Side("with room", pathlib.Path(os.environ["XPUD_ADDRESS"]))
    full, limited = other_daemon("full", "--test-device-memory", f"{DEVICE}MiB", "--move-out", f"{HOST}MiB")
    try:
        at_work(room, full)
        larger(room, full)
        first_answer(full)
    finally:
        room.close()
        full.close()
        limited.close()
    (merging, merges), (apart, keeps) = other_daemon("merging", "--merge", "tenant"), other_daemon("apart", "--merge", "off")
    try:
        equal_uploads(merging, apart)
    finally:
        merges.close()
        keeps.close()


if __name__ == "__main__":
    main()
