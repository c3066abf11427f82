"""Sets xpud up: importing this module registers torch.device("xpud"), which makes it PyTorch's accelerator, and connects the rest of PyTorch to it."""

import sys

import torch

from . import _C  # noqa: F401  registers the device with PyTorch's dispatcher

from .client_name import client_name

_C.set_client_name_function(client_name)

if torch._C._get_privateuse1_backend_name() == "privateuseone":
    torch.utils.rename_privateuse1_backend("xpud")

from . import compile, device, distributed, fake, flops, hint, leaving, packages, parallel, sharing, translate  # noqa: E402  need the name

if not hasattr(torch, "xpud"):
    torch._register_device_module("xpud", device)
    for module in (device.memory, device.random, device.streams):  # for `from torch.xpud.memory import ...`
        sys.modules[f"torch.xpud.{module.__name__.rpartition('.')[2]}"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True)
    # Lazy modules list the methods that are allowed before a parameter has a shape. The list lacks generated methods.
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.xpud)
    compile.install()
    fake.install()
    sharing.install()
    distributed.install()
    parallel.install()
    packages.install()
    flops.install()
    hint.install()
    leaving.install()
    if translate.requested():
        translate.install(translate.requested())
