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
    def rate(self, seconds: float) -> float:
        """Multiplies matrices for a while. Returns how often each second."""
        import xpud
        a = xpud.full((512, 512), 1 / 512, dtype="float32")
        a.numpy()
        done, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            for _ in range(32):
                a = a @ a
            a.numpy()
            done += 32
        return done / (time.monotonic() - began) if done else 0


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
if not ray.is_initialized():
    ray.init(address="auto")
small = Worker.remote()
large = Worker.options(**xpud_ray.ray_options(share=75, num_cpus=0, max_concurrency=2)).remote()
ray.get([worker.rate.remote(0) for worker in (small, large)])  # both run
rates = [sum(ray.get(calls)) for calls in [[worker.rate.remote(seconds) for _ in range(2)] for worker in (small, large)]]
for share, rate in zip((25, 75), rates):
    print(f"share {share}: {rate:.0f} products a second, {100 * rate / sum(rates):.1f}% of all")
