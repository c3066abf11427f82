"""The caller's cost of one tiny op in Python: in a burst during which the device may lag behind, and sustained, with the wait for the last; and the round
trip, an op with its wait, repeatedly, and after a pause."""

import statistics
import time

import rows
import sides
import workers
from tiny_op import TinyOp

BURST = 200


def measure(name: str, count: int, repeats: int, finish_inside: bool) -> None:
    ops = {device: TinyOp(device) for device in sides.DEVICES}
    times = {device: [] for device in ops}
    rows.begin_canary()
    for _ in range(repeats):
        rows.canary()
        for device, op in ops.items():
            op.issue(100)
            sides.synchronize(device)

            def work(device=device, op=op):
                op.issue(count)
                if finish_inside:
                    sides.synchronize(device)

            times[device].append(rows.seconds(work))
            sides.synchronize(device)
    plain, xpud = (statistics.median(times[device]) / count * 1e6 for device in sides.DEVICES)
    rows.emit(name, xpud, "us", sides.PLAIN_NAME, plain, sides.target("ratio <= 0.25"))


def round_trip(name: str, quiet: float, repeats: int) -> None:
    ops = {device: TinyOp(device) for device in sides.DEVICES}
    times = {device: [] for device in ops}

    def there_and_back(device: str) -> None:
        ops[device].issue(1)
        sides.synchronize(device)

    rows.begin_canary()
    for _ in range(3):
        rows.canary()
        for device in ops:  # each in a loop of its own; the other one may sleep meanwhile
            for _ in range(repeats):
                time.sleep(quiet)
                times[device].append(rows.seconds(lambda device=device: there_and_back(device)))
    plain, xpud = (statistics.median(times[device]) * 1e6 for device in sides.DEVICES)
    rows.emit(name, xpud, "us", sides.PLAIN_NAME, plain)


def floor(repeats: int) -> None:
    worker = workers.start("null device", "xpud", workers.NULL_DEVICE)
    worker.expect("ready")
    rows.begin_canary()
    times = []
    for _ in range(repeats):
        rows.canary()
        times.append(workers.asked(worker, "add", BURST))
    worker.close()
    rows.emit("a+b 16x16, the Python floor (null device)", statistics.median(times) / BURST * 1e6, "us")


def main() -> None:
    measure("a+b 16x16, burst", BURST, 20 if rows.SMOKE else 200, finish_inside=False)
    measure("a+b 16x16, sustained", 2_000 if rows.SMOKE else 50_000, 3 if rows.SMOKE else 7, finish_inside=True)
    round_trip("a+b 16x16 and its wait", 0, 10 if rows.SMOKE else 500)
    round_trip("a+b 16x16 and its wait, after 3 ms of quiet", 0.003, 10 if rows.SMOKE else 50)
    floor(20 if rows.SMOKE else 200)


if __name__ == "__main__":
    main()
