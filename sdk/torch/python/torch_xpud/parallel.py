"""torch.nn.DataParallel on one device, as it is used by programs that wrap every model in it."""

import functools

import torch
from torch.nn.parallel import scatter_gather
from torch.utils import _pytree


def _xpud_device(target):
    """Returns the xpud device that a number, name or torch.device means, or None for a device of another type."""
    if isinstance(target, int):
        return torch.device("xpud", target) if torch.accelerator.current_accelerator().type == "xpud" else None
    device = torch.device(target)
    return device if device.type == "xpud" else None


def _on_one_device(original):
    # PyTorch's own splits tensors with an operator that only builds for CUDA have.
    @functools.wraps(original)
    def scatter(inputs, target_gpus, dim=0):
        device = _xpud_device(target_gpus[0])
        if device is None:
            return original(inputs, target_gpus, dim)
        if len(target_gpus) != 1:
            raise NotImplementedError(f"DataParallel on xpud has one device, not {len(target_gpus)}: pass device_ids=[0]")
        return [_pytree.tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, inputs)]

    return scatter


def install():
    changed = _on_one_device(scatter_gather.scatter)
    scatter_gather.scatter = torch.nn.parallel.scatter = changed
