"""From `import torch` to the first result, with a running daemon and warm caches: the device's part of a Python program's start."""

import os
import statistics
import subprocess
import sys

import rows
import sides

# torch_xpud is imported inside the measured time, as plain `import torch` would do at its end.
PROGRAM = """
import sys, time, torch
device = sys.argv[1]
began = time.perf_counter()
if device == "xpud":
    import torch_xpud
assert (torch.ones(3, device=device) * 2).sum().item() == 6
print(time.perf_counter() - began)
"""


def first_result(device: str) -> float:
    return float(subprocess.run([sys.executable, "-c", PROGRAM, device], check=True, stdout=subprocess.PIPE, text=True,
                                env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout)


def main() -> None:
    times = {device: [] for device in sides.DEVICES}
    for device in sides.DEVICES:
        first_result(device)
    for _ in range(1 if rows.SMOKE else 5):
        rows.canary()
        for device in sides.DEVICES:
            times[device].append(first_result(device))
    plain, xpud = (statistics.median(times[device]) * 1e3 for device in sides.DEVICES)
    rows.emit("first result beyond import torch", xpud, "ms", sides.PLAIN_NAME, plain, sides.target("value <= 50"))


if __name__ == "__main__":
    main()
