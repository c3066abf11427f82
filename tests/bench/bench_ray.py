"""Real Ray (tests/engines/ray): what deploy/ray/examples/two_parts.py gets done with 25 and 75, and when a killed actor's claim has gone.

Runs with the Python of tools/test's stage `engines` for Ray, and needs root for a network namespace.
"""

import contextlib
import io
import os
import pathlib
import re
import runpy
import signal
import sys
import time

import rows
from bench_cluster import SECONDS, with_python_of

ROOT = pathlib.Path(__file__).resolve().parents[2]


def measure(node) -> None:
    import ray
    said = io.StringIO()
    sys.argv = ["two_parts.py", str(SECONDS)]
    with contextlib.redirect_stdout(said):
        left = runpy.run_path(str(ROOT / "deploy/ray/examples/two_parts.py"))
    print(said.getvalue(), end="", flush=True)
    parts = {int(share): float(part) for share, part in re.findall(r"share (\d+): .* ([\d.]+)% of all", said.getvalue())}
    rows.emit("Ray, actors of 25/75: the first's part of all", parts[25], "%")
    rows.emit("Ray, actors of 25/75: error", abs(parts[25] - 25), "points", target="value <= 2")
    for worker in left["workers"]:
        ray.kill(worker)
    node.expect_no_claims(30)
    actor = node.start(share=25)
    pid = ray.get(actor.pid.remote())
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    node.expect_no_claims(20)
    rows.emit("Ray, claim gone after an actor was killed", time.perf_counter() - began, "s", target="value <= 1")


def main() -> None:
    with_python_of("engines/ray", __file__)
    sys.path.insert(0, str(ROOT / "tests/engines/ray"))
    import ray
    import ray_test
    ray.cloudpickle.register_pickle_by_value(ray_test)  # its module is not found in workers
    ray_test.setUpModule()
    try:
        ray_test.Node.setUpClass()
        node = ray_test.Node()
        try:
            measure(node)
        finally:
            node.doCleanups()
    finally:
        ray_test.Node.doClassCleanups()


if __name__ == "__main__":
    main()
