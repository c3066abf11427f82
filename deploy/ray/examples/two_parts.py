"""Two actors with a quarter and three quarters of a device compute for a while, and say how much each has done.

    python two_parts.py [SECONDS]          on a Ray cluster whose nodes were started as README.md says
"""

import sys
import time

import ray
import xpud_ray


# Two calls at a time: while one reads its result, the device has the other's work. Time that a part leaves idle goes to others.
@xpud_ray.part(share=25, num_cpus=0, max_concurrency=2)
class Worker:
    def products(self, until: float) -> int:
        """Multiplies matrices until the time `until` of time.time(). Returns how often."""
        import xpud
        a = xpud.full((512, 512), 1 / 512, dtype="float32")
        done = 0
        while time.time() < until:
            for _ in range(32):
                a = a @ a
            a.numpy()
            done += 32
        return done


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
if not ray.is_initialized():
    ray.init(address="auto")
small = Worker.remote()
large = Worker.options(**xpud_ray.ray_options(share=75, num_cpus=0, max_concurrency=2)).remote()
ray.get([worker.products.remote(0) for worker in (small, large)])  # both run
until = time.time() + seconds
counts = [sum(ray.get(calls)) for calls in [[worker.products.remote(until) for _ in range(2)] for worker in (small, large)]]
for share, count in zip((25, 75), counts):
    print(f"share {share}: {count} products, {100 * count / sum(counts):.1f}% of all")
