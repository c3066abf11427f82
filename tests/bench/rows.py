"""Rows that a benchmark reports, one JSON object per line after '@'. C++ benchmarks use the same format (rows.h)."""

import json
import operator
import os
import statistics
import time
from collections.abc import Callable

# In a smoke run every benchmark does everything, but briefly: it shows that the benchmark works, not how fast xpud is.
SMOKE = bool(os.environ.get("XPUD_BENCH_SMOKE"))

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt}
_canary: list[float] = []


def is_met(target: str, value: float, baseline: float | None) -> bool | None:
    """`target` is '[value|ratio|excess] OP NUMBER'; ratio is value/baseline, excess is value-baseline. Returns None if there is no target."""
    if not target:
        return None
    what, comparison, limit = target.split()
    measured = {"value": lambda: value, "ratio": lambda: value / baseline, "excess": lambda: value - baseline}[what]()
    return _COMPARE[comparison](measured, float(limit))


def emit(name: str, value: float, unit: str, baseline: str = "", baseline_value: float | None = None, target: str = "") -> None:
    print("@" + json.dumps({
        "name": name, "value": value, "unit": unit, "baseline": baseline, "baseline_value": baseline_value,
        "ratio": value / baseline_value if baseline_value else None, "target": target,
        "met": is_met(target, value, baseline_value),
        "canary_ms": [round(part * 1e3, 3) for part in (min(_canary), statistics.median(_canary), max(_canary))] if _canary else None}),
        flush=True)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def begin_canary() -> None:
    """Drops the measurements of canary() for earlier rows."""
    _canary.clear()


def canary() -> None:
    """Times a fixed piece of Python, which shows the momentary speed of the processor. Rows carry the minimum, median and maximum since
    begin_canary()."""
    _canary.append(seconds(lambda: sum(i * i for i in range(20_000))))


def interleaved(works: dict[str, Callable[[], object]], repeats: int, pause: float = 0) -> dict[str, float]:
    """Returns the median seconds of each piece of work, run in turns, so that other load affects all alike. `pause`: seconds before each."""
    times = {name: [] for name in works}
    begin_canary()
    for turn in range(repeats):
        canary()
        names = list(works) if turn % 2 == 0 else list(reversed(works))
        for name in names:
            time.sleep(pause)
            times[name].append(seconds(works[name]))
    return {name: statistics.median(values) for name, values in times.items()}
