"""What the adaptations of other packages share."""

import functools
import sys

import torch

DEVICE_TYPES = {"cuda", "xpu", "hpu", "mps", "npu"}


def available():
    """Returns whether this process has an xpud device. Connects to a daemon."""
    return torch.xpud.is_available()


def default_device(index=None):
    """Returns torch.device("xpud") (with `index`, if given) if there is one, otherwise None."""
    if not available():
        return None
    return torch.device("xpud") if index is None else torch.device("xpud", index)


def replace(owner, name, make):
    """Replaces the function `owner.name` by make(function). Raises AttributeError if it does not exist.

    `owner` is a module or a class. Static methods and properties, also cached ones, stay that. Modules of the same package that imported the function by name before
    get the new one, too.
    """
    original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    if isinstance(original, property):
        setattr(owner, name, property(functools.wraps(original.fget)(make(original.fget)), original.fset, original.fdel, original.__doc__))
        return
    if isinstance(original, functools.cached_property):
        changed = type(original)(functools.wraps(original.func)(make(original.func)))
        changed.__set_name__(owner, name)
        setattr(owner, name, changed)
        return
    if isinstance(original, staticmethod):
        setattr(owner, name, staticmethod(functools.wraps(original.__func__)(make(original.__func__))))
        return
    changed = functools.wraps(original)(make(original))
    setattr(owner, name, changed)
    package = getattr(owner, "__name__", "").partition(".")[0]
    if isinstance(owner, type) or not package:
        return
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(f"{package}.") and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, changed)


def widen(function, *also):
    """Adds "xpud" to each constant tuple or set of device types in a function's code: `device.type in ("cuda", "xpu")` then includes it.

    `also` are further tuples to extend, as they are written in the source. Returns how many were extended.
    """
    count = 0

    def widened(constant):
        nonlocal count
        if hasattr(constant, "co_consts"):  # the code of an inner function
            return constant.replace(co_consts=tuple(map(widened, constant.co_consts)))
        if isinstance(constant, (tuple, frozenset)) and "xpud" not in constant:
            strings = all(isinstance(each, str) for each in constant)
            if constant in also or (strings and len(constant) > 1 and DEVICE_TYPES & set(constant)):
                count += 1
                return type(constant)((*constant, "xpud"))
        return constant

    function = getattr(function, "__wrapped__", function)
    function.__code__ = widened(function.__code__)
    return count


def must_widen(function, *also):
    """Like widen. Raises LookupError if the function has no such constant."""
    if not widen(function, *also):
        raise LookupError(f"{function.__qualname__} has no list of device types")
