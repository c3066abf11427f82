"""Which device a program means."""

import torch


def index_of(device=None):
    """Returns the index of `device`: None (the current one), int, str or torch.device. Raises ValueError for a device of another type."""
    if device is None:
        return torch._C._accelerator_getDeviceIndex()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "xpud":
        raise ValueError(f"Expected an xpud device, but got: {device}")
    return torch._C._accelerator_getDeviceIndex() if device.index is None else device.index
