"""From the start of a Python process to its first result, daemon running and caches warm, beside plain PyTorch."""

import os
import subprocess
import sys

import rows


def first_result(device: str) -> None:
    code = f"import torch; assert (torch.ones(3, device='{device}') * 2).sum().item() == 6"
    # Plain PyTorch as if xpud were not installed: the package must not load itself.
    env = None if device == "xpud" else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | (env or {}))


def main() -> None:
    first_result("xpud"), first_result("cpu")
    times = rows.interleaved({device: lambda device=device: first_result(device) for device in ("cpu", "xpud")},
                             2 if rows.SMOKE else 9)
    rows.emit("start to first result", times["xpud"], "s", "plain PyTorch, CPU", times["cpu"], "excess <= 0.2")


if __name__ == "__main__":
    main()
