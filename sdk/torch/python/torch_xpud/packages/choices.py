"""Packages in which one function chooses the device, and chooses the CPU if it knows no accelerator."""

import torch

from .adapt import available, default_device, replace


def sentence_transformers(module):
    """sentence_transformers.util.environment: the device of a model without `device`."""
    replace(module, "get_device_name", lambda original: lambda: str(default_device(0) or original()))


def peft(module):
    """peft.utils.other: the device onto which adapters are loaded."""
    replace(module, "infer_device", lambda original: lambda: "xpud" if available() else original())


def torch_geometric(module):
    """torch_geometric.device: the device "auto"."""

    def choose(original):
        return lambda device: torch.device("xpud") if isinstance(device, str) and device == "auto" and available() else original(device)

    replace(module, "device", choose)


def torchao(module):
    """torchao.utils: the devices that there are; the last one is where optimizers with CPU offload compute."""
    replace(module, "get_available_devices", lambda original: lambda: [*original(), *(["xpud"] if available() else [])])
