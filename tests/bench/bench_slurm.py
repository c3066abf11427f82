"""Real Slurm (tests/engines): what three jobs of 50, 30 and 20 get done at once, whether a fourth waits, and when a cancelled job's claim has gone.

Runs with the Python of tools/test's stage `engines`, and needs root for the namespaces. The jobs are root's, who may read this Python.
"""

import pathlib
import sys
import time

import rows
from bench_cluster import SECONDS, WORKER, with_python_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARES = (50, 30, 20)


def counts(cluster, job: int) -> list[int]:
    """The products in each second, the first one left out, as far as it is known."""
    words = [line.split() for line in cluster.slurm.output(job).splitlines()]
    return [int(each[1]) for each in words if len(each) == 2 and each[0].isdigit()][1:]


def measure(cluster) -> None:
    from cluster import wait_until
    go = cluster.folder / "slurm/out/go"
    program = cluster.folder / "worker.py"
    program.write_text(WORKER)
    script = (f"export PYTHONPATH={ROOT}/build/release/lib\n"
              f"(while [ ! -e {go} ]; do sleep 0.05; done; echo go; sleep 1000) | exec {sys.executable} {program} 256 20\n")
    jobs = {share: cluster.slurm.submit(script, f"--gres=xpud:{share}", "--xpud-memory=64MiB") for share in SHARES}
    for job in jobs.values():
        wait_until(lambda job=job: "ready" in cluster.slurm.output(job), 60, lambda job=job: cluster.slurm.output(job) + cluster.slurm.log("slurmd"))
    fourth = cluster.slurm.submit("true", f"--gres=xpud:{SHARES[-1]}")
    go.touch()
    wait_until(lambda: all(len(counts(cluster, job)) >= SECONDS for job in jobs.values()), 30 + 2 * SECONDS)
    waits = cluster.slurm.ask("squeue", "--noheader", "-j", fourth, "-o", "%T %r").strip()
    done = {share: sum(counts(cluster, job)[:SECONDS]) for share, job in jobs.items()}
    parts = {share: 100 * each / sum(done.values()) for share, each in done.items()}
    print("parts: " + ", ".join(f"{part:.2f}% of {share}" for share, part in parts.items()) + f"; the fourth: {waits}", flush=True)
    rows.emit("Slurm, jobs of 50/30/20: the largest error", max(abs(part - share) for share, part in parts.items()), "points", target="value <= 2")
    rows.emit("Slurm, a fourth job waits for resources", float(waits == "PENDING Resources"), "", target="value >= 1")
    began = time.perf_counter()
    cluster.slurm.ask("scancel", jobs[SHARES[-1]])
    wait_until(lambda: f"slurm-{jobs[SHARES[-1]]}" not in cluster.claims(), 20)
    rows.emit("Slurm, claim gone after scancel", time.perf_counter() - began, "s", target="value <= 1")


def main() -> None:
    with_python_of("engines", __file__)
    import pwd

    import slurm_cluster
    why_not = slurm_cluster.why_not()
    if why_not:
        sys.exit(why_not)
    slurm_cluster.enter_namespaces()
    slurm_cluster.USER = pwd.getpwuid(0)
    try:
        slurm_cluster.SlurmTest.setUpClass()
        measure(slurm_cluster.SlurmTest())
    finally:
        slurm_cluster.SlurmTest.doClassCleanups()


if __name__ == "__main__":
    main()
