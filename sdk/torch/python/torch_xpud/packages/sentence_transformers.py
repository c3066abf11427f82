"""sentence-transformers chooses the CPU if it knows no accelerator."""

from .adapt import default_device, replace


def environment(module):
    replace(module, "get_device_name", lambda original: lambda: str(default_device(0) or original()))
