"""The caller's cost of one small eager op through the Python client, beside NumPy on the CPU and torch_xpud: 200 at a time, in turns."""

import statistics

import numpy
import rows
import torch

BURST = 200  # ops issued while the daemon may lag behind


def works() -> dict[str, dict]:
    """Returns operation -> side -> function."""
    import xpud
    values = {"numpy": [numpy.ones((16, 16), numpy.float32) for _ in range(2)]}
    values["xpud"] = [xpud.asarray(each) for each in values["numpy"]]
    values["torch"] = [torch.from_numpy(each).to("xpud") for each in values["numpy"]]
    library = {"numpy": numpy, "xpud": xpud, "torch": torch}
    return {
        "a+b": {who: lambda a=a, b=b: a + b for who, (a, b) in values.items()},
        "exp(a)": {who: lambda a=a, exp=library[who].exp: exp(a) for who, (a, _) in values.items()},
        "a[1:, ::2] * 2": {who: lambda a=a: a[1:, ::2] * 2 for who, (a, _) in values.items()},
        "sum over an axis": {"numpy": lambda a=values["numpy"][0]: a.sum(axis=1), "xpud": lambda a=values["xpud"][0]: a.sum(axis=1),
                             "torch": lambda a=values["torch"][0]: a.sum(1)},
        "a @ b": {who: lambda a=a, b=b: a @ b for who, (a, b) in values.items()},
    }


def issue(work) -> None:
    for _ in range(BURST):
        work()


def main() -> None:
    import xpud
    repeats = 20 if rows.SMOKE else 300
    for name, contenders in works().items():
        times: dict[str, list[float]] = {who: [] for who in contenders}
        rows.begin_canary()
        for turn in range(repeats):
            rows.canary()
            for who in (contenders if turn % 2 == 0 else reversed(contenders)):
                times[who].append(rows.seconds(lambda work=contenders[who]: issue(work)) / BURST * 1e9)
                xpud.synchronize()
                torch.xpud.synchronize()
        median = {who: statistics.median(each) for who, each in times.items()}
        rows.emit(f"{name}, 16x16, Python client", median["xpud"], "ns", "torch_xpud", median["torch"], "ratio <= 1.0" if name == "a+b" else "")
        rows.emit(f"{name}, 16x16, Python client", median["xpud"], "ns", "NumPy, CPU", median["numpy"])


if __name__ == "__main__":
    main()
