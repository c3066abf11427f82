"""Beside another accelerator, xpud is set up when the program first uses it. Until then PyTorch has the other accelerator, and nothing of it changes.

A use is any of: a name of an xpud device that PyTorch parses (csrc/first_use.cc), an attribute of torch.xpud, the method xpud() of tensors and
modules, and a saved tensor that is loaded onto xpud. The program is then told what PyTorch allows it with the other one.
"""

import importlib
import re
import sys
import threading
import types
import warnings

import torch

from . import _first_use

_MODULES = ("torch.xpud", "torch.xpud.memory", "torch.xpud.random", "torch.xpud.streams")
_OWNERS = (torch.Tensor, torch.nn.Module, torch.nn.utils.rnn.PackedSequence, torch.storage._StorageBase, torch.TypedStorage)  # of the method xpud()
_lock = threading.RLock()
_waits = False
_other = None  # the name of the other accelerator

ADVICE = ("This process uses xpud and {other}. PyTorch has one accelerator for each process, and since the first use of xpud it is xpud: on {other}, "
          "programs can still compute and copy, but backward() fails ('opt_ready_stream && opt_parent_stream INTERNAL ASSERT FAILED'). Train on "
          "{other} in a process of its own, which does not use xpud.")


class _Waiting(types.ModuleType):
    """torch.xpud, or a module in it, until the first use."""

    def __getattr__(self, name):
        if name.startswith("__"):  # inspect and warnings ask all modules for such names
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        use()
        return getattr(sys.modules[self.__name__], name)


def _move(self, *arguments, **options):
    use()
    return self.xpud(*arguments, **options)  # by now PyTorch's own method


def _restore(storage, location):
    """Restores a storage that was saved on xpud, or is wanted there. Returns None for other locations."""
    if not re.match(r"xpud(:\d+)?$", location):
        return None
    use()
    return torch.serialization._deserialize("privateuse1", storage, location)


def _say(other):
    warnings.warn(ADVICE.format(other=other), stacklevel=2)


def _tell_when_both_are_used(other):
    if other in ("cuda", "xpu"):
        getattr(torch, other)._lazy_call(lambda: _say(other))  # at once if it is initialised, otherwise at its initialisation
    else:
        _say(other)


def use():
    """Sets xpud up, if it waits. Thread-safe: other threads that use xpud meanwhile wait, too."""
    global _waits
    with _lock:
        if not _waits:
            return
        _waits = False
        _remove()
        try:
            importlib.import_module(f"{__package__}.active")
        except BaseException:
            _add()
            _waits = True
            raise
        _first_use.unwatch()
        _tell_when_both_are_used(_other)


def _add():
    for name in _MODULES:
        sys.modules[name] = _Waiting(name)
    torch.xpud, torch.Tensor.is_xpud = sys.modules["torch.xpud"], False
    for owner in _OWNERS:
        owner.xpud = _move


def _remove():
    del torch.xpud, torch.Tensor.is_xpud
    for owner in _OWNERS:
        del owner.xpud
    for name in _MODULES:
        del sys.modules[name]


def install(other):
    """Waits for the first use, beside the accelerator `other`."""
    global _waits, _other
    _waits, _other = True, other
    _add()
    torch.serialization.register_package(30, lambda storage: None, _restore)  # after PyTorch's own
    _first_use.watch(use)
