"""Translates device names where they enter PyTorch: torch.device, functions with an argument `device`, methods of tensors and modules."""

import functools
import re

import torch
import torch.utils._device

NAMES = ("cuda", "xpu", "hpu")
_DEVICE = re.compile(r"(cuda|xpu|hpu)(:\d+)?$")
_TENSOR_TYPE = re.compile(r"torch\.(cuda|xpu|hpu)\.(\w+Tensor)$")

_device = torch.device


def installed():
    return torch.device is not _device


def translated(value):
    """Returns the xpud device for the name or torch.device of a translated type, and everything else as it is."""
    if isinstance(value, str):
        match = _DEVICE.match(value)
        if match:
            return f"xpud{match.group(2) or ''}"
        match = _TENSOR_TYPE.match(value)
        return f"torch.xpud.{match.group(2)}" if match else value
    if isinstance(value, _device) and value.type in NAMES:
        return _device("xpud") if value.index is None else _device("xpud", value.index)
    return value


def translates(function):
    """Wraps a function so that device names among its arguments are translated."""

    @functools.wraps(function)
    def call(*arguments, **options):
        if options:
            options = {name: translated(value) for name, value in options.items()}
        return function(*map(translated, arguments), **options)

    return call


def _class(original):
    """Returns a class that constructs objects of `original`, which cannot be subclassed, and accepts them in isinstance."""

    class Translated(type):
        def __instancecheck__(cls, value):
            return isinstance(value, original)

        def __subclasscheck__(cls, other):
            return other is cls or issubclass(other, original)

        def __getattr__(cls, name):
            return getattr(original, name)

        def __eq__(cls, other):  # torch.fx compares the types of constants with torch.device
            return other is cls or other is original

        def __hash__(cls):
            return hash(original)

    def __new__(cls, *arguments, **options):
        return original(*map(translated, arguments), **{name: translated(value) for name, value in options.items()})

    return Translated(original.__name__, (), {"__new__": __new__, "__module__": original.__module__, "__qualname__": original.__name__,
                                              "__doc__": original.__doc__})


def _replace(owner, name, make=translates):
    if hasattr(owner, name):
        setattr(owner, name, make(getattr(owner, name)))


def _takes_device(name):
    """Returns whether an operator has an argument `device`: factories, and functions such as zeros_like."""
    return any(argument.name == "device" for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}") for argument in schema.arguments)


def _factories():
    """Replaces the functions that create tensors on a device. torch.jit.script knows built-in functions by identity, and learns the wrappers."""
    builtins = torch.jit._builtins._get_builtin_table()
    constructors = torch.utils._device._device_constructors()  # cached from here on, with the original functions
    for owner, prefix in ((torch, ""), (torch.fft, "fft_"), (torch.nested, ""), (torch.signal.windows, "")):
        for name, function in list(vars(owner).items()):
            if name.startswith("_") or not callable(function) or isinstance(function, type):
                continue
            if function in constructors or _takes_device(prefix + name):
                wrapped = translates(function)
                setattr(owner, name, wrapped)
                if id(function) in builtins:
                    builtins[id(wrapped)] = builtins[id(function)]


def _moves_to_xpud(kind):
    """Returns the method cuda() of tensors or modules."""

    def move(self, device=None, non_blocking=False, **options):
        target = _device("xpud") if device is None else _device("xpud", device) if isinstance(device, int) else translated(device)
        return self.to(target, non_blocking=non_blocking, **options)

    def move_module(self, device=None):
        return move(self, device)

    return move if kind == "tensor" else move_module


def _type(original):
    @functools.wraps(original)
    def type(self, dtype=None, non_blocking=False, **options):
        return original(self, translated(getattr(dtype, "xpud_name", dtype)), non_blocking, **options)

    return type


def _methods():
    for name in ("to", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "pin_memory", "is_pinned"):
        _replace(torch.Tensor, name)
    _replace(torch.Tensor, "type", _type)
    _replace(torch.nn.Module, "to")
    _replace(torch.nn.Module, "to_empty")
    for name in NAMES:
        setattr(torch.Tensor, name, _moves_to_xpud("tensor"))
        setattr(torch.nn.Module, name, _moves_to_xpud("module"))


def _mixed_precision():
    for function in ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"):
        _replace(torch, function)
    modes = torch.amp.autocast_mode
    _replace(modes.autocast, "__init__")
    _replace(torch.amp.GradScaler, "__init__")
    for function in ("custom_fwd", "custom_bwd", "is_autocast_available"):
        original = getattr(modes, function)
        wrapped = translates(original)
        for owner in (modes, torch.amp):
            if getattr(owner, function, None) is original:
                setattr(owner, function, wrapped)
        partial = getattr(torch.cuda.amp, function, None)  # deprecated there: functools.partial of the original
        if partial is not None:
            setattr(torch.cuda.amp, function, functools.partial(wrapped, device_type="xpud"))
            setattr(torch.cuda.amp.autocast_mode, function, functools.partial(wrapped, device_type="xpud"))


def _load(original):
    @functools.wraps(original)
    def load(f, map_location=None, *arguments, **options):
        if isinstance(map_location, dict):
            map_location = {source: translated(target) for source, target in map_location.items()}
        return original(f, translated(map_location), *arguments, **options)

    return load


def _restore(storage, location):
    """Restores a storage that was saved on a translated device. Returns None for other locations."""
    place = translated(location)
    return torch.serialization._deserialize("xpud", storage, place) if place != location else None


def _default_tensor_type(original):
    @functools.wraps(original)
    def set_default_tensor_type(kind):
        name = getattr(kind, "xpud_name", kind if isinstance(kind, str) else "")
        match = _TENSOR_TYPE.match(name) or re.match(r"torch\.(xpud)\.(\w+Tensor)$", name)
        if not match:
            return original(kind)
        original(f"torch.{match.group(2)}")
        torch.set_default_device("xpud")

    return set_default_tensor_type


def install():
    for name in ("device", "Generator", "Stream", "Event"):
        setattr(torch, name, _class(getattr(torch, name)))
    _factories()
    _methods()
    _mixed_precision()
    for name in ("set_default_device", "set_autocast_cache_enabled"):
        _replace(torch, name)
    _replace(torch.random, "fork_rng")
    _replace(torch, "load", _load)
    _replace(torch, "set_default_tensor_type", _default_tensor_type)
    torch.serialization.register_package(19, lambda storage: None, _restore)  # before PyTorch's own of cuda, which is 20
