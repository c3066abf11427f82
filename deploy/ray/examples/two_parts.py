"""Two actors with a quarter and three quarters of a device compute for a while, and say how much each has done.

    python two_parts.py [SECONDS]          on a Ray cluster whose nodes were started as README.md says
"""

import sys
import time

import ray
import xpud_ray


@xpud_ray.part(share=25, num_cpus=0)
class Worker:
    def products(self, until: float) -> int:
        """Multiplies matrices until the time `until` of time.time(). Returns how often."""
        import xpud
        a = xpud.full((384, 384), 1 / 384, dtype="float32")
        done = 0
        while time.time() < until:
            for _ in range(8):
                a = a @ a
            a.numpy()
            done += 8
        return done


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
if not ray.is_initialized():
    ray.init(address="auto")
small = Worker.remote()
large = Worker.options(**xpud_ray.ray_options(share=75, num_cpus=0)).remote()
ray.get([worker.products.remote(0) for worker in (small, large)])  # both run
counts = ray.get([worker.products.remote(time.time() + seconds) for worker in (small, large)])
for share, count in zip((25, 75), counts):
    print(f"share {share}: {count} products, {100 * count / sum(counts):.1f}% of all")
