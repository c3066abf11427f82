"""Worker processes (worker.py) as their parent sees them."""

import pathlib
import sys

from channel import Child

HERE = pathlib.Path(__file__).resolve().parent
NULL_DEVICE = {"XPUD_NULL_DEVICE": "1"}  # commands are dropped: what is left is what Python and PyTorch cost


def start(name: str, device: str, env: dict[str, str] | None = None) -> Child:
    """A worker on its way; `ready` comes when it has imported everything. `device`: plain or xpud."""
    own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device == "plain" else {}  # plain PyTorch is without xpud
    return Child(name, [sys.executable, HERE / "worker.py", "--device", device], own | (env or {}))


def opened(worker: Child) -> int:
    """Lets it open the device; the bytes of its tensors there."""
    worker.send("open")
    return worker.expect("opened", 60)["tensor_bytes"]


def asked(worker: Child, *command):
    """What it measured when told `command`."""
    worker.send(*command)
    return worker.expect("done", 60)["seconds"]
