"""What is done before the interpreter ends.

Autograd runs backward passes for a device in a thread of its own. It lets go of a pass after the pass has been reported as complete, and for objects of
Python's it then takes the interpreter's lock. If the interpreter is being finalised at that moment, the thread ends the process: `terminate called without
an active exception`.
"""

import atexit

import torch

_last = []  # of the passes below: released with the module


def wait_for_autograd() -> None:
    """Returns when the autograd thread of each device in use has let go of earlier passes: it takes one pass after the other. The last one needs no kernel,
    and nothing of Python's is released with it. Failures are ignored, because the daemon may have ended."""
    if not torch.xpud.is_initialized():
        return
    for index in range(torch.xpud.device_count()):
        try:
            x = torch.empty(1, device=torch.device("xpud", index), requires_grad=True)
            with torch.enable_grad():
                y = x.view(1)
            _last.append((x, y, torch.autograd.grad(y, x, x.detach())))
        except RuntimeError:
            return


def install() -> None:
    atexit.register(wait_for_autograd)
