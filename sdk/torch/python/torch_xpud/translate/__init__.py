"""Runs programs that were written for cuda, xpu or hpu on xpud: `python -m torch_xpud script.py`.

Device names are translated where they enter PyTorch (devices), the modules torch.cuda, torch.xpu and torch.hpu answer for xpud (modules), and the
program's own comparisons of device names with constants hold for xpud, too (source). What has no equivalent raises NotImplementedError.

Everything below PyTorch's interface is xpud's: a tensor on "cuda:0" is on xpud:0, and says so.
"""

import os
import pathlib
import re
import sys

ENVIRONMENT = "XPUD_TRANSLATE"  # the program's folder; set for child processes, such as workers that are spawned: they translate, too


def requested():
    """Returns the folder of the program for which a parent process asked for translation, or None."""
    return os.environ.get(ENVIRONMENT)


_MENTIONS = {"cuda": re.compile(rb"\bcuda\b"), "xpu": re.compile(rb"\bxpu\b|intel_extension_for_pytorch"), "hpu": re.compile(rb"\bhpu\b|habana")}
_MAX_FILES = 1000  # that are searched


def devices_of(folder):
    """Returns for which of cuda, xpu and hpu the sources in a folder and its subfolders were written; cuda if they mention none.

    Only these become available: a package that finds several kinds of accelerators in one process takes paths that no machine has.
    """
    files = [*pathlib.Path(folder).glob("*.py"), *pathlib.Path(folder).glob("*/*.py")][:_MAX_FILES]
    found = set()
    for file in files:
        try:
            source = file.read_bytes()
        except OSError:
            continue
        found |= {name for name, pattern in _MENTIONS.items() if pattern.search(source)}
    return found or {"cuda"}


def installed():
    """Returns whether this process translates."""
    devices = sys.modules.get(f"{__name__}.devices")
    return devices is not None and devices.installed()


def install(folder):
    """Translates in this process and in its children, for a program whose modules are in `folder`. Calling it again changes nothing."""
    from . import devices, modules, source, vendors

    if devices.installed():
        return
    os.environ[ENVIRONMENT] = folder
    names = devices_of(folder)
    devices.install()
    modules.install(names)
    vendors.install(names)
    source.install(folder)


def announce(program):
    """Says on standard error, once, that names are translated."""
    print(f"torch_xpud: {program} runs on xpud; cuda, xpu and hpu mean xpud in it", file=sys.stderr, flush=True)
