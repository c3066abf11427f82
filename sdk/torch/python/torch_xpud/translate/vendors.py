"""Stand-ins for packages of the vendors that programs for hpu and xpu import: what they do to a program besides naming the device is little.

They exist only if the real package is not installed, and have only what is listed here: another import of theirs fails as usual.
"""

import enum
import importlib.util
import sys
import types

import torch

from ..device import synchronize


def _nothing(*arguments, **options):
    """Does nothing."""


def _same(model, *arguments, **options):
    """Returns the model: graphs are not captured."""
    return model


def _optimize(model, dtype=None, optimizer=None, **options):
    """ipex.optimize: returns the model, in `dtype` if it is for inference, and the optimizer if there is one."""
    if optimizer is not None:
        return model, optimizer
    return model.to(dtype) if dtype is not None and not model.training else model


class FP32MathMode(enum.IntEnum):
    """How products of float32 may be rounded. xpud computes them in float32."""

    FP32, TF32, BF32 = 0, 1, 2


def _full_precision(device="cpu"):
    return FP32MathMode.FP32


def _hpu():
    return {name: getattr(torch.hpu, name) for name in torch.hpu.__all__ if hasattr(torch.hpu, name)} | {"wrap_in_hpu_graph": _same, "ModuleCacher": _same}


DEVICES = {"habana_frameworks": "hpu", "intel_extension_for_pytorch": "xpu", "oneccl_bindings_for_pytorch": "xpu"}

PACKAGES = {  # module -> its attributes
    "habana_frameworks": lambda: {},
    "habana_frameworks.torch": lambda: {"hpu": sys.modules["habana_frameworks.torch.hpu"], "core": sys.modules["habana_frameworks.torch.core"]},
    "habana_frameworks.torch.core": lambda: {"mark_step": _nothing, "hpu_set_env": _nothing, "hpu_initialize": _nothing, "hpu_set_inference_env": _nothing,
                                             "hpu_inference_set_env": _nothing, "hpu_inference_initialize": _nothing, "is_lazy": lambda: False},
    "habana_frameworks.torch.hpu": _hpu,
    "habana_frameworks.torch.utils": lambda: {},
    "habana_frameworks.torch.utils.library_loader": lambda: {"load_habana_module": _nothing, "is_habana_avaialble": lambda: True},  # spelt so there
    "habana_frameworks.torch.utils.internal": lambda: {"is_lazy": lambda: False},
    "habana_frameworks.torch.utils.debug": lambda: {},
    "habana_frameworks.torch.utils.experimental": lambda: {},
    "habana_frameworks.torch.gpu_migration": lambda: {},
    "habana_frameworks.torch.distributed": lambda: {"hccl": types.ModuleType("hccl")},
    "habana_frameworks.torch.distributed.hccl": lambda: {},
    "intel_extension_for_pytorch": lambda: {"optimize": _optimize, "xpu": torch.xpu, "__version__": torch.__version__, "synchronize": synchronize,
                                            "FP32MathMode": FP32MathMode, "set_fp32_math_mode": _nothing, "get_fp32_math_mode": _full_precision,
                                            "enable_onednn_fusion": _nothing, "enable_auto_channels_last": _nothing,
                                            "disable_auto_channels_last": _nothing},
    "intel_extension_for_pytorch.llm": lambda: {"optimize": _optimize},
    "oneccl_bindings_for_pytorch": lambda: {},
}


def install(names):
    """Creates the packages of the devices `names`."""
    absent = {root for root, device in DEVICES.items() if device in names and root not in sys.modules and importlib.util.find_spec(root) is None}
    modules = {name: types.ModuleType(name, "A stand-in of torch_xpud") for name in PACKAGES if name.partition(".")[0] in absent}
    for name, module in modules.items():
        module.__path__ = []  # a package: an import of something else inside fails with ModuleNotFoundError
        module.__spec__ = importlib.util.spec_from_loader(name, loader=None, is_package=True)
        sys.modules[name] = module
    for name, module in modules.items():
        vars(module).update(PACKAGES[name]())
        parent, _, last = name.rpartition(".")
        if parent in modules:
            setattr(modules[parent], last, module)
