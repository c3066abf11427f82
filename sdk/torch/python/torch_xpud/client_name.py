"""The name under which xpuctl lists this process."""

import os
import sys


def client_name() -> str:
    """Returns `train.py` for a script, `pkg` for `python -m pkg`, and `python` without a script (-c, prompts, notebooks)."""
    script = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name != "__main__":  # -m; for "__main__", a folder or archive, use argv
        script = spec.name.removesuffix(".__main__")
    elif script == "__main__.py":  # started by multiprocessing in a parent that was started with -m
        script = os.path.basename(os.path.dirname(sys.argv[0]))
    if script in ("", "-", "-c", "-m") or script.removesuffix(".py").endswith("kernel_launcher"):  # ipykernel, colab
        script = "python"
    return script.encode("utf-8", "replace").decode()  # a file name may contain any bytes
