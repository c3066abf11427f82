"""safetensors reads files onto a fixed list of devices ("device xpud is invalid"). For xpud, files are read on the CPU and each tensor is copied."""

import torch

from .adapt import available


def _is_xpud(device):
    """Returns whether tensors go to xpud: named, or by the number of an accelerator's device."""
    if isinstance(device, int):
        return available()
    return str(device).partition(":")[0] == "xpud"


class _Slice:
    """A part of a tensor: indexing reads that part and copies it to the device."""

    def __init__(self, inner, device):
        self._inner, self._device = inner, device

    def __getitem__(self, index):
        return self._inner[index].to(self._device)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class _File:
    """An open file whose tensors are copied to a device."""

    def __init__(self, inner, device):
        self._inner, self._device = inner, device

    def get_tensor(self, name):
        return self._inner.get_tensor(name).to(self._device)

    def get_tensors(self, *arguments, **options):
        return {name: tensor.to(self._device) for name, tensor in self._inner.get_tensors(*arguments, **options).items()}

    def get_slice(self, name):
        return _Slice(self._inner.get_slice(name), self._device)

    def __enter__(self):
        self._inner.__enter__()
        return self

    def __exit__(self, *exception):
        return self._inner.__exit__(*exception)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def _is_torch(framework):
    return framework in ("pt", "torch", "pytorch")


def package(module):
    """Called when safetensors was imported, before its users import names from it."""
    original = module.safe_open

    class Opened(type):
        """isinstance(file, safe_open) holds for files on every device."""

        def __instancecheck__(cls, value):
            return isinstance(value, (original, _File))

    class safe_open(metaclass=Opened):  # noqa: N801  the name of safetensors
        __doc__ = original.__doc__

        def __new__(cls, filename, framework, device="cpu", **options):
            if _is_torch(framework) and _is_xpud(device):
                return _File(original(filename, framework, device="cpu", **options), torch.device(device))
            return original(filename, framework, device=device, **options)

    module.safe_open = safe_open

