"""torch.cuda.comm on one device. PyTorch's own functions exist only in its builds for CUDA."""

import torch
import torch.cuda.comm
from torch.nn.parallel import comm

from .devices import translated


def _only(devices):
    """Returns the one device of a list; xpud's current one, if there is no list."""
    devices = [None] if devices is None else list(devices)
    if len(devices) != 1:
        raise NotImplementedError(f"torch.cuda.comm on xpud has one device, not {len(devices)}")
    return _device(devices[0])


def _device(device):
    if device is None:
        return torch.device("xpud", torch.xpud.current_device())
    return torch.device("xpud", device) if isinstance(device, int) else torch.device(translated(device))



def broadcast(tensor, devices=None, *, out=None):
    """Returns a tuple of the tensor on each device. Raises RuntimeError unless either `devices` or `out` is given, as PyTorch does."""
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}")
    if out is None:
        return (tensor.to(_only(devices)),)
    return tuple(each.copy_(tensor) for each in out)


def broadcast_coalesced(tensors, devices, buffer_size=10485760):
    device = _only(devices)
    return [[tensor.to(device) for tensor in tensors]]


def reduce_add(inputs, destination=None):
    """Returns the sum of tensors of one shape; the tensor itself, if it is one and there already."""
    target = _device(destination)
    for each in inputs:
        if each.shape != inputs[0].shape:
            raise ValueError(f"input 0 has invalid size: got {tuple(each.shape)}, but expected {tuple(inputs[0].shape)}")
    total = inputs[0].to(target)
    for each in inputs[1:]:
        total = total + each.to(target)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size=10485760):
    return tuple(reduce_add(list(tensors), destination) for tensors in zip(*inputs, strict=True))


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """Returns a tuple with the one chunk. Raises RuntimeError if `chunk_sizes` has another sum than the dimension."""
    if out is not None:
        return tuple(each.copy_(part) for each, part in zip(out, tensor.split([each.size(dim) for each in out], dim), strict=True))
    device = _only(devices)
    if chunk_sizes is not None and list(chunk_sizes) != [tensor.size(dim)]:
        raise RuntimeError(f"given chunk sizes don't sum up to the tensor's size: {list(chunk_sizes)} for {tensor.size(dim)}")
    return (tensor.to(device),)


def gather(tensors, dim=0, destination=None, *, out=None):
    """Concatenates tensors on `destination`: a device, or -1 or "cpu" for the CPU."""
    if out is not None:
        return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)
    target = torch.device("cpu") if destination in (-1, "cpu", torch.device("cpu")) else _device(destination)
    return torch.cat([tensor.to(target) for tensor in tensors], dim)


def install():
    for function in (broadcast, broadcast_coalesced, reduce_add, reduce_add_coalesced, scatter, gather):
        setattr(comm, function.__name__, function)
        setattr(torch.cuda.comm, function.__name__, function)
