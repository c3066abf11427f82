"""What xpuctl calls this process."""

import os
import sys


def client_name() -> str:
    """`train.py` for a script, `pkg` for `python -m pkg`, `python` where there is no script: -c, prompts, notebooks."""
    script = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name != "__main__":  # -m; "__main__" is a folder or archive, which argv names
        script = spec.name.removesuffix(".__main__")
    elif script == "__main__.py":  # a process that multiprocessing started, of a parent started with -m
        script = os.path.basename(os.path.dirname(sys.argv[0]))
    if script in ("", "-", "-c", "-m") or script.removesuffix(".py").endswith("kernel_launcher"):  # of ipykernel, colab
        script = "python"
    return script.encode("utf-8", "replace").decode()  # a file's name may be any bytes
