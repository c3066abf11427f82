"""A Kubernetes node of tests/engines: how long the agent takes to prepare claims, what it costs at rest, what two pods of 30 and 70 get done, and
whether the times of four pods in the daemon's metrics agree with what they got done.

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
CLAIMS = 40 if rows.SMOKE else 300
AT_REST = 10 if rows.SMOKE else 100
REST_SECONDS = 3 if rows.SMOKE else 60
SECONDS = 3 if rows.SMOKE else 20

# Says how many products of matrices were computed in each second, until it is ended. A batch is queued before the one before it is read, so that
# it always has work. Arguments: the size of the matrices, and the products of a batch.
WORKER = """
import sys, time, numpy, xpud
size, products = map(int, sys.argv[1:])
a = xpud.asarray(numpy.full((size, size), 1 / size, 'float32'))
def batch():
    b = a
    for _ in range(products):
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
    done += products
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


def start_workers(node, shares: tuple[int, ...], size: int, products: int) -> dict[int, subprocess.Popen]:
    """Starts a pod for each share, which is its name, and has them begin at the same time."""
    workers = {}
    for share in shares:
        ids = node.kubelet.must_prepare(node.claim(share=share, memory="64Mi", pods=(str(share),)))
        environment = {"PYTHONPATH": str(ROOT / "build/release/lib")}
        workers[share] = node.kubelet.start_container(ids, [sys.executable, "-c", WORKER, size, products], env=environment)
        node.addCleanup(workers[share].communicate)
        node.addCleanup(workers[share].kill)
    for worker in workers.values():
        assert worker.stdout.readline() == "ready\n", worker.stderr.read()
    for worker in workers.values():
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return workers


def done_in(worker: subprocess.Popen, seconds: int) -> list[int]:
    """Returns the number of products in each of the next seconds."""
    return [int(worker.stdout.readline().split()[1]) for _ in range(seconds)]


def shares(node) -> None:
    workers = start_workers(node, (30, 70), 256, 20)
    counts = {share: done_in(worker, SECONDS + 1)[1:] for share, worker in workers.items()}
    parts = [100 * small / (small + large) for small, large in zip(counts[30], counts[70], strict=True)]
    within = sum(abs(part - 30) <= 2 for part in parts) / len(parts) * 100
    rows.emit("two pods at 30/70: seconds within 2 points of 30", within, "%", target="value >= 95")
    rows.emit("two pods at 30/70: the first's part of all", sum(counts[30]) / (sum(counts[30]) + sum(counts[70])) * 100, "%")


def device_seconds(node) -> dict[int, float]:
    """By pod, as Prometheus joins it (deploy/kubernetes/README.md)."""
    import metrics  # of tools/lib, whose folder tests/engines/cluster.py has added
    text = metrics.scrape(node.daemon)
    pods = {labels["tenant"]: int(labels["label_pod"]) for labels, _ in metrics.series(text, "xpud_claim_info")}
    return {pods[labels["tenant"]]: value for labels, value in metrics.series(text, "xpud_tenant_device_seconds_total") if labels["tenant"] in pods}


def times(node) -> None:
    # Larger products than above: the first of a turn, for which the caches are cold, costs smaller shares more per product, and that is no error.
    workers = start_workers(node, (10, 20, 30, 40), 512, 3)
    for worker in workers.values():
        done_in(worker, 2)
    before = device_seconds(node)
    done = {share: sum(done_in(worker, SECONDS)) for share, worker in workers.items()}
    used = {share: seconds - before[share] for share, seconds in device_seconds(node).items()}
    apart = {share: abs(used[share] / sum(used.values()) / (done[share] / sum(done.values())) - 1) * 100 for share in workers}
    for share in workers:
        print(f"share {share}: {used[share]:.2f} s of the device, {done[share]} products, {apart[share]:.2f}% apart", flush=True)
    rows.emit("four pods at 10/20/30/40: time in metrics against work, the worst", max(apart.values()), "%", target="value <= 2")


def with_python_of(tests: str, program: str) -> None:
    """Has `program` run with the environment of tests/TESTS, and its modules found. Returns in that process only."""
    sys.path.insert(0, str(ROOT / "tests/engines"))
    if pathlib.Path(sys.prefix) == ROOT / "build" / tests.replace("/", "-"):
        return
    sys.path.insert(0, str(ROOT / "tools/checks"))
    from runner import Log
    from stage_environment import prepare
    python = prepare(Log("bench-cluster"), tests)
    sys.exit(subprocess.run([python, program], env=os.environ | {"TMPDIR": "/dev/shm"}).returncode)


def main() -> None:
    with_python_of("engines", __file__)
    from cluster import NodeTest
    for part in (prepare_times, at_rest, shares, times):
        node = NodeTest()
        node.FLAGS = ("--device", "cpu", "--metrics-listen", "0") if part is times else NodeTest.FLAGS
        try:
            node.setUp()
            part(node)
        finally:
            node.doCleanups()


if __name__ == "__main__":
    main()
