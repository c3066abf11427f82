"""How many commands this process has had the device execute."""

import json
import os
import subprocess

import torch
import torch_xpud

XPUCTL = os.path.join(os.path.dirname(torch_xpud.__file__), "..", "..", "bin", "xpuctl")


def executed():
    """The number of commands of this process that the device has completed, allocations among them. Other processes may use the daemon."""
    torch.xpud.synchronize()
    sessions = json.loads(subprocess.run([XPUCTL, "-o", "json", "ps"], check=True, capture_output=True, text=True).stdout)["sessions"]
    return sum(session["commands_completed"] for session in sessions if session["pid"] == os.getpid())
