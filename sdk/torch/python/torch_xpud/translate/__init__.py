"""Runs programs that were written for cuda, xpu or hpu on xpud: `python -m torch_xpud script.py`.

Device names are translated where they enter PyTorch (devices), the modules torch.cuda, torch.xpu and torch.hpu answer for xpud (modules), and the
program's own comparisons of device names with constants hold for xpud, too (source). What has no equivalent raises NotImplementedError.

Everything below PyTorch's interface is xpud's: a tensor on "cuda:0" is on xpud:0, and says so.
"""

import os
import sys

ENVIRONMENT = "XPUD_TRANSLATE"  # the program's folder; set for child processes, such as workers that are spawned: they translate, too


def requested():
    """Returns the folder of the program for which a parent process asked for translation, or None."""
    return os.environ.get(ENVIRONMENT)


def install(folder):
    """Translates in this process and in its children, for a program whose modules are in `folder`. Calling it again changes nothing."""
    from . import devices, modules, source, vendors

    if devices.installed():
        return
    os.environ[ENVIRONMENT] = folder
    devices.install()
    modules.install()
    vendors.install()
    source.install(folder)


def announce(program):
    """Says on standard error, once, that names are translated."""
    print(f"torch_xpud: {program} runs on xpud; cuda, xpu and hpu mean xpud in it", file=sys.stderr, flush=True)
