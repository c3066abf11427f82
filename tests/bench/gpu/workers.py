"""Worker processes (worker.py, trainer.py) as their parent sees them."""

import pathlib
import sys

from channel import Child

HERE = pathlib.Path(__file__).resolve().parent
NULL_DEVICE = {"XPUD_NULL_DEVICE": "1"}  # commands are dropped, so only Python and PyTorch are measured


def start(name: str, device: str, env: dict[str, str] | None = None, program: str = "worker.py") -> Child:
    """Starts a worker. `ready` comes when it has imported everything. `device`: plain or xpud."""
    own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device == "plain" else {}  # plain PyTorch must not load xpud
    return Child(name, [sys.executable, HERE / program, "--device", device], own | (env or {}))


def opened(worker: Child) -> int:
    """Makes it open the device. Returns the bytes of its tensors there."""
    worker.send("open")
    return worker.expect("opened", 60)["tensor_bytes"]


def asked(worker: Child, *command):
    """Sends `command`. Returns what it measured."""
    worker.send(*command)
    return worker.expect("done", 60)["seconds"]
