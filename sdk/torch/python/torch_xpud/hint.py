"""A hint for programs that ask torch.cuda.is_available() and, as the answer is False, would use the CPU without a word."""

import functools
import pathlib
import sys
import sysconfig
import warnings

import torch

from . import _C

_LIBRARIES = tuple(str(pathlib.Path(folder).resolve()) for folder in (sysconfig.get_path("stdlib"), pathlib.Path(torch.__file__).parents[1],
                                                                       pathlib.Path(__file__).parent))


def _is_program(frame):
    """Returns whether a frame belongs to the user's program, and not to an installed package."""
    name = frame.f_code.co_filename
    return "site-packages" not in name and "dist-packages" not in name and not name.startswith((*_LIBRARIES, "<frozen"))


_said = []  # the module whose answer has been commented; at most one


def _say_once(name):
    if not _said:
        _said.append(name)
        warnings.warn(f"torch.{name}.is_available() is False, but this PyTorch has xpud. Use torch.device('xpud') or torch.accelerator, or run the "
                      "program unchanged with: python -m torch_xpud ...", stacklevel=3)


def _with_hint(original, name):
    @functools.wraps(original)
    def is_available():
        available = original()
        if not available and not _C.is_connected() and _is_program(sys._getframe(1)):
            _say_once(name)
        return available

    return is_available


def install():
    """Wraps is_available() of torch.cuda and torch.xpu. The hint comes once, and not in a program that has used xpud."""
    for name in ("cuda", "xpu"):
        module = getattr(torch, name)
        module.is_available = _with_hint(module.is_available, name)
