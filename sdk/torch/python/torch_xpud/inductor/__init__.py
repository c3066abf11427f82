"""Inductor for xpud. Inductor lowers graphs and decides what is fused; each fused loop is sent to the daemon as data, which checks and compiles it.

Importing this imports Inductor and registers the back end. torch_xpud.dynamo does so for the first graph with xpud tensors.

| module | what it is |
|---|---|
| `kernel_bytes` | loop kernels and their bytes |
| `ops_handler` | Inductor's loop bodies as statements |
| `scheduling` | fusion, and the kernel of a fused group |
| `wrapper` | the Python code around kernels |
| `runtime` | what that code calls |
| `choices` | what runs as an operator |
| `activations` | products that compute their activation |
| `masks` | attention masks that are known when a graph is compiled |
| `orders` | orders of loops that can be fused with reductions |
| `patches` | what is changed in PyTorch |
"""

import torch
from torch._inductor import config
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    get_device_op_overrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.compile_fx import compile_fx

from .. import dynamo
from . import patches
from .activations import GiveActivations
from .choices import ChooseOperators, InTurn, SaveBeforeMutation, compile_loops
from .masks import SimplifyMasks
from .orders import OrderLoops, restore_loops
from .scheduling import Scheduling
from .wrapper import Wrapper


class _DeviceOps(DeviceOpOverrides):
    """Text for the wrapper."""

    def import_get_raw_stream_as(self, name):
        return f"def {name}(index):\n    return torch.xpud.current_stream(index).stream_id\n"

    def set_device(self, device_idx):
        return f"torch.xpud.set_device({device_idx})"

    def synchronize(self):
        return "torch.xpud.synchronize()"

    def device_guard(self, device_idx):
        return f"torch.xpud.device({device_idx})"

    def current_stream(self):
        return "torch.xpud.current_stream()"


def _register():
    dynamo.register()  # programs that call Inductor without torch.compile, as PyTorch's scripts do, ask for the device interface
    register_backend_for_device("xpud", Scheduling, Wrapper)
    get_device_op_overrides("cpu")  # registers PyTorch's own devices, which it does only before any other is there
    register_device_op_overrides("xpud", _DeviceOps())
    patches.install()


# For graphs with xpud tensors, whatever the program sets.
_SETTINGS = {
    "split_reductions": False,  # a kernel's reduction is divided by the daemon
    "layout_optimization": False,  # convolutions keep the program's layout, as in eager execution
    "disable_cpp_codegen": True,  # what is on the CPU runs as operators: there may be no C++ compiler
    "size_asserts": True,  # where an operator's result is given the expected layout: see wrapper.py
    "alignment_asserts": False,  # device memory has no address
    "cpp_wrapper": False,
    "fx_wrapper": False,
    "triton.cudagraphs": False,
    "max_autotune": False,  # nothing to choose from: products are the table's
    "max_autotune_gemm": False,
    "max_autotune_pointwise": False,
    "coordinate_descent_tuning": False,
    "combo_kernels": False,
    "benchmark_kernel": False,
    "online_softmax": False,
}


def settings(given):
    """Returns the patches of Inductor's configuration for a graph of xpud, from those that the program gave."""
    known = config.get_config_copy()
    patched = {**given, **{name: value for name, value in _SETTINGS.items() if name in known}}
    for name, ours in (("post_grad_custom_post_pass", (GiveActivations(), ChooseOperators())), ("joint_custom_post_pass", (SimplifyMasks(), SaveBeforeMutation()))):
        passes = patched.get(name, getattr(config, name)) or ()
        patched[name] = InTurn(*(passes if isinstance(passes, (list, tuple)) else (passes,)), *ours)
    for name, ours in (("_pre_fusion_custom_pass", OrderLoops()), ("_post_fusion_custom_pass", restore_loops)):
        if patched.get(name, getattr(config, name)) is None:  # private, and one alone
            patched[name] = ours
    return patched


def _refuse_machine_code(graph, given):
    """Raises NotImplementedError for what would make the client send or run machine code. Kernels are data, which the daemon checks and compiles."""
    if given.get("cpp_wrapper", config.cpp_wrapper):
        raise NotImplementedError("torch.compile on xpud has no cpp_wrapper: the code around kernels is Python. Leave cpp_wrapper off.")
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and getattr(node.target, "__name__", "").startswith("triton_kernel_wrapper"):
                    raise NotImplementedError("xpud runs no Triton kernels of programs. Write this kernel with PyTorch's operators: torch.compile fuses them.")


def compile_graph(graph, inputs, given=None, **kwargs):
    """Compiles a graph of Dynamo that has xpud tensors, with Inductor's options `given`. Raises NotImplementedError for those that xpud lacks."""
    _refuse_machine_code(graph, given or {})
    return compile_fx(graph, inputs, inner_compile=compile_loops, config_patches=settings(given or {}), **kwargs)


_register()
