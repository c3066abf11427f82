"""Corrects what fake tensors believe of xpud's results, so that compiled and exported graphs have eager execution's strides.

PyTorch's fake convolution asks which of its own backends would run it, and takes contiguous results for any other device. On xpud a
convolution is channels-last if its input or its weight is (`FormatOf` in csrc/ops/convolution.cc). Fake convolutions of other devices are
unchanged.
"""

import functools

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_impls

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _format(value, weight):
    last = CHANNELS_LAST.get(value.dim())
    either = last is not None and last in (suggest_memory_format(value), suggest_memory_format(weight))
    return last if either else torch.contiguous_format


def _corrected(convolution):
    @functools.wraps(convolution)
    def corrected(fake_mode, func, *args, **kwargs):
        results = convolution(fake_mode, func, *args, **kwargs)
        schema = [argument.name for argument in func._schema.arguments]
        named = dict(zip(schema, args)) | kwargs
        value, weight = named["input"], named["weight"]
        if value.device.type != "xpud":
            return results
        with fake_mode:
            format = _format(value, weight)
            if isinstance(results, torch.Tensor):
                return results.to(memory_format=format)
            shaped = (result if result is None else result.to(memory_format=format) for result in results[:2])
            return (*shaped, *results[2:])

    return corrected


def install():
    aten = torch.ops.aten
    for op in (aten.convolution.default, aten._convolution.default, aten._convolution.deprecated, aten.convolution_backward.default):
        if op in fake_impls.op_implementations_dict:
            fake_impls.op_implementations_dict[op] = _corrected(fake_impls.op_implementations_dict[op])
