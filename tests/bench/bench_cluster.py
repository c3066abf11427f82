"""A Kubernetes node of tests/engines: how long the agent takes to prepare claims, what it costs at rest, and what two pods of 30 and 70 get done.

Runs with the Python of tools/test's stage `engines`, and needs root for the containers.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = ROOT / "build/engines/bin/python"
CLAIMS = 40 if rows.SMOKE else 300
AT_REST = 10 if rows.SMOKE else 100
REST_SECONDS = 3 if rows.SMOKE else 60
SECONDS = 3 if rows.SMOKE else 20

# Says how many products of matrices were computed in each second, until it is ended. A batch is queued before the one before it is read, so that
# it always has work.
WORKER = """
import sys, time, numpy, xpud
a = xpud.asarray(numpy.full((256, 256), 1 / 256, 'float32'))
def batch():
    b = a
    for _ in range(20):
        b = a @ b
    return b
queued = batch()
queued.numpy()
print('ready', flush=True)
sys.stdin.readline()
start = time.monotonic()
queued, done, second = batch(), 0, 0
while True:
    queued, read = batch(), queued
    read.numpy()
    done += 20
    now = int(time.monotonic() - start)
    if now > second:
        print(now, done, flush=True)
        done, second = 0, now
"""


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def agent_usage(pid: int) -> tuple[float, float]:
    """Returns the resident MiB and the CPU seconds."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return resident / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def prepare_times(node) -> None:
    names = [node.claim(share=1, memory="1Mi") for _ in range(CLAIMS)]
    times: list[float] = []

    def cycle(name: dict) -> None:
        began = time.perf_counter()
        node.kubelet.must_prepare(name)
        times.append(time.perf_counter() - began)
        node.kubelet.unprepare(name)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(cycle, names))
    rows.emit(f"prepare, {CLAIMS} with 8 at once: p50", percentile(times, 0.5) * 1e3, "ms", target="value <= 15")
    rows.emit(f"prepare, {CLAIMS} with 8 at once: p99", percentile(times, 0.99) * 1e3, "ms", target="value <= 50")


def at_rest(node) -> None:
    names = [node.claim(share=1, memory="1Mi") for _ in range(AT_REST)]
    for name in names:
        node.kubelet.must_prepare(name)
    time.sleep(2)
    _, before = agent_usage(node.agent.process.pid)
    began = time.monotonic()
    time.sleep(REST_SECONDS)
    resident, after = agent_usage(node.agent.process.pid)
    rows.emit(f"agent at rest, {len(names)} claims: memory", resident, "MiB", target="value <= 30")
    rows.emit(f"agent at rest, {len(names)} claims: of a core", (after - before) / (time.monotonic() - began) * 100, "%", target="value <= 0.1")
    node.kubelet.unprepare(*names)


def shares(node) -> None:
    counts = {}
    workers = {}
    for share in (30, 70):
        ids = node.kubelet.must_prepare(node.claim(share=share, memory="64Mi"))
        environment = {"PYTHONPATH": str(ROOT / "build/release/lib")}
        workers[share] = node.kubelet.start_container(ids, [sys.executable, "-c", WORKER], env=environment)
    try:
        for worker in workers.values():
            assert worker.stdout.readline() == "ready\n", worker.stderr.read()
        for worker in workers.values():
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for share, worker in workers.items():
            counts[share] = [int(worker.stdout.readline().split()[1]) for _ in range(SECONDS + 1)][1:]
    finally:
        for worker in workers.values():
            worker.kill()
            worker.communicate()
    parts = [100 * small / (small + large) for small, large in zip(counts[30], counts[70], strict=True)]
    within = sum(abs(part - 30) <= 2 for part in parts) / len(parts) * 100
    rows.emit("two pods at 30/70: seconds within 2 points of 30", within, "%", target="value >= 95")
    rows.emit("two pods at 30/70: the first's part of all", sum(counts[30]) / (sum(counts[30]) + sum(counts[70])) * 100, "%")


def main() -> None:
    if pathlib.Path(sys.prefix) != ENGINES.parents[1]:
        sys.path.insert(0, str(ROOT / "tools/checks"))
        from runner import Log
        from stage_environment import prepare
        prepare(Log("bench-cluster"), "engines")
        sys.exit(subprocess.run([ENGINES, __file__], env=os.environ | {"TMPDIR": "/dev/shm"}).returncode)
    sys.path.insert(0, str(ROOT / "tests/engines"))
    from cluster import NodeTest
    for part in (prepare_times, at_rest, shares):
        node = NodeTest()
        try:
            node.setUp()
            part(node)
        finally:
            node.doCleanups()


if __name__ == "__main__":
    main()
