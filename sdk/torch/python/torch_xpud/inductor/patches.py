"""What is changed in PyTorch. Each change is for xpud alone.

- `lowering.is_gpu` also knows xpud. `make_pointwise` asks it for the device of a loop over a 0-dim CPU tensor and a tensor on the device. Nothing else
  in that module does. Inductor's `GPU_TYPES` stays as it is.
"""

import functools

from torch._inductor import lowering


@functools.cache
def install():
    original = lowering.is_gpu
    lowering.is_gpu = lambda device: device == "xpud" or original(device)
