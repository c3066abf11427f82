"""Two actors with a quarter and three quarters of a device compute for a while, and say how much each has done.

    python two_parts.py [SECONDS]          on a Ray cluster whose nodes were started as README.md says
"""

import random
import sys
import time

import ray
import xpud_ray

CALLS = 3  # at a time, so that the device has work of the others while one reads its result: time that a part leaves idle goes to others


@xpud_ray.part(share=25, num_cpus=0, max_concurrency=CALLS)
class Worker:
    def rate(self, begin: float, seconds: float) -> float:
        """Multiplies matrices until `seconds` after the time `begin` of time.time(). Returns how often each second since `begin`."""
        import xpud
        a = xpud.full((512, 512), 1 / 512, dtype="float32")
        done, began = 0, None
        while (now := time.time()) < begin + seconds:
            if now >= begin and began is None:
                done, began = 0, now
            count = random.randint(8, 48)  # so that the calls do not all read at the same time
            for _ in range(count):
                a = a @ a
            a.numpy()
            done += count
        return done / (time.time() - began) if began else 0


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
if not ray.is_initialized():
    ray.init(address="auto")
workers = [Worker.remote(), Worker.options(**xpud_ray.ray_options(share=75, num_cpus=0, max_concurrency=CALLS)).remote()]
ray.get([worker.rate.remote(0, 0) for worker in workers])  # both run
begin = time.time() + 2
calls = [[worker.rate.remote(begin, seconds) for _ in range(CALLS)] for worker in workers]
rates = [sum(ray.get(each)) for each in calls]
for share, rate in zip((25, 75), rates):
    print(f"share {share}: {rate:.0f} products a second, {100 * rate / sum(rates):.1f}% of all")
