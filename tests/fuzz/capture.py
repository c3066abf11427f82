#!/usr/bin/env python3
"""Captures the corpora anew: runs the end-to-end tests with an observer between each client and its daemon, and keeps the inputs that the fuzz targets
need for full coverage (libFuzzer's -set_cover_merge=1, together with the present corpora).

Usage: tests/fuzz/capture.py, without arguments. The observer, this file again, takes the place of the daemon's program.
"""

import json
import mmap
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE, FUZZ = ROOT / "build/release", ROOT / "build/asan-ubsan"
CORPUS = ROOT / "tests/fuzz/corpus"
WORK = FUZZ / "capture"
TARGETS = ("wire", "session", "hello", "control", "options", "cache", "metrics", "remote")
SUITES = ("compute", "host_memory", "executor", "faults", "loop_kernels")

PAGE, RING = 4096, 1 << 20
MOST_OF_A_SESSION = 32 << 10  # bytes of its ring
NO_FD, HOST_MEMORY, SESSION_FDS = 0, 1, 6  # as hello_fuzzer.cc makes them
CONTROL = {"status": (0, "GetStatusResponse"), "devices": (1, "ListDevicesResponse"), "ps": (2, "ListSessionsResponse"),
           "version": (3, "GetVersionResponse"), "memory": (30, "ListMemoryResponse")}


# ---- the observer

def keep(kind: str, content: bytes) -> None:
    folder = pathlib.Path(os.environ["XPUD_CAPTURE"]) / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}-{threading.get_ident()}-{len(list(folder.iterdir()))}").write_bytes(content)


def message(content: bytes, fds: int) -> bytes:
    return struct.pack("<HB", len(content), fds) + content


class Connection:
    """One client and its connection to the daemon. Passes on the socket's traffic and reads the ring."""

    def __init__(self, client: socket.socket, real: str):
        self.client, self.daemon = client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.daemon.connect(real)
        self.real = real
        self.asked, self.answered, self.stream = b"", b"", b""
        self.ring = None

    def run(self) -> None:
        while self.forward():
            self.read_ring()
        self.read_ring()
        keep("ring", self.stream)
        keep("asked", self.asked)
        keep("answered", self.answered)
        self.show()
        self.client.close()
        self.daemon.close()

    def forward(self) -> bool:
        readable, _, _ = select.select([self.client, self.daemon], [], [], 0.0005)
        for one in readable:
            content, fds, _, _ = socket.recv_fds(one, 8192, 8)
            if not content:
                return False
            from_client = one is self.client
            kind = NO_FD if not fds else HOST_MEMORY if from_client else SESSION_FDS
            if from_client:
                self.asked += message(content, kind)
            else:
                self.answered += message(content, kind)
            try:
                socket.send_fds(self.daemon if from_client else self.client, [content], fds)
            except OSError:
                return False
            if len(fds) == 4 and self.ring is None:
                self.ring = mmap.mmap(fds[0], PAGE + RING, mmap.MAP_SHARED, mmap.PROT_READ)
            for fd in fds:
                os.close(fd)
        return True

    def read_ring(self) -> None:
        """Reads only the first bytes, which are overwritten after a whole ring."""
        if self.ring is None or len(self.stream) >= MOST_OF_A_SESSION:
            return
        tail = min(struct.unpack_from("<Q", self.ring, 0)[0], MOST_OF_A_SESSION)
        self.stream += self.ring[PAGE + len(self.stream):PAGE + tail]

    def show(self) -> None:
        for command in CONTROL:
            answer = subprocess.run([RELEASE / "bin/xpuctl", "--address", self.real, "-o", "json", command], capture_output=True)
            if answer.returncode == 0:
                keep(command, answer.stdout)


def observe(arguments: list[str]) -> int:
    """Runs the real daemon on a socket of its own, for clients that connect to the observer."""
    keep("arguments", b"\0".join(argument.encode() for argument in arguments))
    if "--socket" not in arguments:
        os.execv(RELEASE / "bin/xpud", ["xpud", *arguments])
    theirs = pathlib.Path(arguments[arguments.index("--socket") + 1])
    real = theirs.with_name("real") / "xpud.sock"
    real.parent.mkdir()
    cache = pathlib.Path(os.environ["XPUD_CAPTURE"]) / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    changed = dict(zip(arguments, arguments[1:])) | {"--socket": str(real)}
    changed["--cache-dir"] = str(cache)
    ready = os.pipe()
    changed["--ready-fd"] = str(ready[1])
    own = [changed[before] if before in ("--socket", "--cache-dir", "--ready-fd") else argument
           for before, argument in zip(["", *arguments], arguments)]
    daemon = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", RELEASE / "bin/xpud", *own], pass_fds=[ready[1]])
    os.close(ready[1])
    if os.read(ready[0], 1) != b"1":
        return 1
    (theirs.with_name("control.sock")).symlink_to(real.with_name("control.sock"))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(theirs))
    listener.listen(64)
    if "--ready-fd" in arguments:
        os.write(int(arguments[arguments.index("--ready-fd") + 1]), b"1")
    threading.Thread(target=lambda: os._exit(daemon.wait() & 0x7f), daemon=True).start()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=Connection(client, str(real)).run, daemon=True).start()


# ---- converting observations to inputs

def commands(stream: bytes) -> list[bytes]:
    found = []
    while len(stream) >= 8:
        size = struct.unpack_from("<I", stream)[0]
        if size < 8 or size > len(stream):
            break
        found.append(stream[:size])
        stream = stream[size:]
    return found


def prefixes(stream: bytes) -> list[bytes]:
    """Returns the session's beginning in several lengths: later bytes make no sense without it."""
    whole, found = b"", []
    limits = [256, 2048]
    for command in commands(stream):
        if limits and len(whole) + len(command) > limits[0]:
            found.append(whole)
            limits.pop(0)
        whole += command
    return found + ([whole] if limits else [])


def text_format(value: dict) -> str:
    out = ""
    for name, field in value.items():
        for one in field if isinstance(field, list) else [field]:
            out += f"{name} {{ {text_format(one)} }}\n" if isinstance(one, dict) else f"{name}: {json.dumps(one)}\n"
    return out


def encoded(kind: str, shown: bytes) -> bytes:
    """Returns the message that xpuctl has shown."""
    value = json.loads(shown)
    text = text_format(value["daemon"] if kind == "version" else value)
    return subprocess.run(["protoc", "-I", ROOT, f"--encode=xpud.v1.{CONTROL[kind][1]}", ROOT / "proto/control/xpud.proto"],
                          input=text.encode(), check=True, capture_output=True).stdout


def object_of(cached: bytes) -> bytes:
    return cached[56 + struct.unpack_from("<Q", cached, 8)[0]:]  # kernels/compiler/object_cache.cc


def inputs(seen: pathlib.Path) -> dict[str, list[bytes]]:
    def all_of(kind: str) -> list[bytes]:
        return sorted({path.read_bytes() for path in (seen / kind).iterdir()}) if (seen / kind).exists() else []

    found: dict[str, list[bytes]] = {target: [] for target in TARGETS}
    for stream in all_of("ring"):
        found["wire"] += set(commands(stream))
        for start in prefixes(stream):
            found["session"] += [bytes([mode]) + start for mode in (0x04, 0x05, 0x37)]
    found["hello"] += [b"\0" + asked for asked in all_of("asked")] + [b"\1" + answered for answered in all_of("answered")]
    for kind, (selector, _) in CONTROL.items():
        found["control"] += [bytes([selector]) + encoded(kind, shown) for shown in all_of(kind)]
    samples = [encoded("status", shown) for shown in all_of("status")]
    found["control"] += [b"\4" + struct.pack("<H", len(a)) + a + b for a, b in zip(samples, samples[1:])]
    found["control"] += [bytes([selector]) for selector in (5, 6, 7, 8)]
    found["options"] += [b"\0" + arguments for arguments in all_of("arguments")]
    found["metrics"] = [b"\0\x09\0" + method + b" " + path + b" HTTP/1.1\r\nHost: a\r\nAccept: " + accept + b"\r\n\r\n"
                        for method in (b"GET", b"HEAD", b"POST") for path in (b"/metrics", b"/metrics?a=1", b"/")
                        for accept in (b"*/*", b"application/openmetrics-text;version=1.0.0,text/plain;q=0.5")]  # nobody asks in the suites
    found["metrics"] += [b"\1train.py"]
    found["remote"] = [b"\0# tokens\nteam-a secret-a\n\nsecret\n", b"\x40\x0a\x04\x20\x01\x30\x08\x12\x08\x08\0\0\0\x01\0\0\0", b"\x01\x0a\0", b"\x02\x0a\x02\x28\x05"]
    for cached in all_of("cache"):
        code = object_of(cached)
        found["cache"] += [b"\0" + code, b"\3" + cached, b"\1" + code[:18] + struct.pack("<H", 190) + code[20:]]  # CUDA's machine
    found["cache"] += [b"\2" + path.read_bytes()[:512] for path in (FUZZ / "kernels/library/ptx").glob("product.ptx")]
    return found


def minimise(target: str, found: list[bytes]) -> None:
    candidates, merged = WORK / "candidates" / target, WORK / "merged" / target
    for folder in (candidates, merged):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for number, content in enumerate(found):
        (candidates / f"{number:05}").write_bytes(content)
    present = [CORPUS / target] if (CORPUS / target).exists() else []
    subprocess.run([FUZZ / f"bin/fuzz_{target}", "-set_cover_merge=1", "-max_len=16384", merged, candidates, *present], check=True,
                   env=os.environ | {"ASAN_OPTIONS": "detect_container_overflow=0"}, stderr=subprocess.DEVNULL)
    shutil.rmtree(CORPUS / target, ignore_errors=True)
    shutil.copytree(merged, CORPUS / target)
    kept = list(merged.iterdir())
    print(f"{target}: {len(found)} seen, {len(kept)} kept, {sum(path.stat().st_size for path in kept) / 1024:.0f} KiB")


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "--observe":
        return observe(sys.argv[2:])
    suites = [f"e2e_{suite}_test" for suite in SUITES]
    for preset, targets in (("release", [*suites, "xpud", "xpuctl", "ze_xpud"]), ("asan-ubsan", ["xpud_fuzzers"])):
        if not (ROOT / f"build/{preset}/build.ninja").exists():
            subprocess.run(["tools/setup", "--no-build"], cwd=ROOT, check=True)
            subprocess.run(["cmake", "--preset", preset], cwd=ROOT, check=True)
        subprocess.run(["cmake", "--build", f"build/{preset}", "--target", *targets], cwd=ROOT, check=True)
    shutil.rmtree(WORK, ignore_errors=True)
    seen, programs = WORK / "seen", WORK / "bin"
    seen.mkdir(parents=True)
    programs.mkdir()
    (programs / "xpud").write_text(f"#!/bin/sh\nexec {sys.executable} {__file__} --observe \"$@\"\n")
    (programs / "xpud").chmod(0o755)
    (programs / "xpuctl").symlink_to(RELEASE / "bin/xpuctl")
    for suite in suites:  # their daemon is the program `xpud` in their folder
        shutil.copy(RELEASE / "bin" / suite, programs)
        with (WORK / f"{suite}.log").open("w") as log:
            subprocess.run([programs / suite], env=os.environ | {"XPUD_CAPTURE": str(seen)}, stdout=log, stderr=log, timeout=600)
    for target, found in inputs(seen).items():
        minimise(target, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
