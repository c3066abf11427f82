"""torch.nn.DataParallel on one device, as it is used by programs that wrap every model in it."""

import torch
from torch.nn.parallel import DataParallel
from torch.utils import _pytree


def _scatter(original):
    def scatter(self, inputs, kwargs, device_ids):
        if self.src_device_obj.type != "xpud":
            return original(self, inputs, kwargs, device_ids)
        if len(device_ids) != 1:
            raise NotImplementedError(f"DataParallel on xpud has one device, not {len(device_ids)}: pass device_ids=[0]")
        device = torch.device("xpud", device_ids[0])

        def move(value):
            return value.to(device) if isinstance(value, torch.Tensor) else value

        return (_pytree.tree_map(move, tuple(inputs)),), (_pytree.tree_map(move, dict(kwargs or {})),)

    return scatter


def install():
    DataParallel.scatter = _scatter(DataParallel.scatter)
