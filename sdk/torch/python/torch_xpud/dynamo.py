"""TorchDynamo's interface to xpud: the backend "xpud" of torch.compile, and the device interface. Importing this imports torch._dynamo.

Graphs with xpud tensors go to Inductor, with xpud's back end (torch_xpud.inductor). If the daemon has no loop kernels, forward and backward are
captured with AOTAutograd, and their operators run one by one.
"""

import functools
import operator
import warnings

import torch
from torch._dynamo import trace_rules
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.backends.registry import register_backend
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._functorch.partitioners import default_partition
from torch._prims import rng_prims
from torch.utils._pytree import tree_leaves

from . import _C, translate
from . import device as api


# ---- which graphs are xpud's


def _is_on_xpud(value):
    if isinstance(value, torch.device):
        return value.type == "xpud"
    return isinstance(value, torch.Tensor) and value.device.type == "xpud"


def uses_xpud(graph, inputs):
    """Returns whether an input, a parameter, a constant or a computed value of Dynamo's graph is on xpud."""
    if any(map(_is_on_xpud, tree_leaves(list(inputs)))):
        return True
    if any(map(_is_on_xpud, graph.parameters())) or any(map(_is_on_xpud, graph.buffers())):
        return True
    for module in graph.modules():  # includes the bodies of control flow and checkpoints
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                values = (node.args, node.kwargs, node.meta.get("example_value"), node.meta.get("val"))
                if any(map(_is_on_xpud, tree_leaves(values))):
                    return True
    return False


# ---- layouts


def _hint(size):
    """Returns the number for a size or stride, or None if it depends on data."""
    if isinstance(size, torch.SymInt):
        return size.node.hint if size.node.has_hint() else None
    return size


def _dense_order(fake):
    """Returns the dimensions of a dense tensor from the outermost to the innermost, those of size 1 first. Returns None for a tensor with gaps,
    without elements, or of unknown sizes."""
    sizes = [_hint(size) for size in fake.shape]
    strides = [_hint(stride) for stride in fake.stride()]
    if None in sizes or None in strides or 0 in sizes:
        return None
    inner = sorted((d for d in range(fake.dim()) if sizes[d] != 1), key=lambda d: -strides[d])
    expected = 1
    for d in reversed(inner):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    return [d for d in range(fake.dim()) if sizes[d] == 1] + inner


def _contiguous(value):
    return value if value.is_contiguous() else value.contiguous()


def _permuted(value, order, inverse):
    there = value.permute(order)
    return value if there.is_contiguous() else there.contiguous().permute(inverse)


def _makes_new_tensors(node):
    """Returns False for views, in-place operators and nodes that are not operators."""
    return isinstance(node.target, torch._ops.OpOverload) and not any(value.alias_info for value in node.target._schema.returns)


def _keep_layouts(graph):
    """Gives every new tensor of an AOTAutograd graph the layout that its fake tensor had.

    Graphs contain `view` and `as_strided` calls that are valid only for the fake layouts. Operators that fall back can have others: those of the
    CPU's kernel.
    """
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        source = node.args[0] if node.target is operator.getitem else node
        fake = node.meta.get("val")
        if not isinstance(source, torch.fx.Node) or not _makes_new_tensors(source) or not isinstance(fake, torch.Tensor):
            continue
        if fake.dim() < 2 or fake.layout != torch.strided or not _is_on_xpud(fake):
            continue
        order = _dense_order(fake)
        if order is None:
            continue
        moving = [d for d in order if _hint(fake.shape[d]) != 1]
        with graph.inserting_after(node):
            if moving == sorted(moving):
                kept = graph.call_function(_contiguous, (node,))
            else:
                inverse = sorted(range(len(order)), key=order.__getitem__)
                kept = graph.call_function(_permuted, (node, order, inverse))
        kept.meta.update(node.meta)
        node.replace_all_uses_with(kept, delete_user_cb=lambda user, kept=kept: user is not kept)


# ---- random operators that the backward pass repeats (activation checkpointing)


def _run_and_save_state(index, op, *args, **kwargs):
    return api.get_rng_state(index), op(*args, **kwargs)


def _run_with_state(index, state, op, *args, **kwargs):
    current = api.get_rng_state(index)
    api.set_rng_state(state, index)
    try:
        return op(*args, **kwargs)
    finally:
        api.set_rng_state(current, index)


def _choose_by_device(ours, original):
    """Returns a kernel that runs `ours` if a tensor or a `device=` is on xpud."""

    def run(*args, **kwargs):
        for value in tree_leaves((args, kwargs)):
            if _is_on_xpud(value):
                device = value.device if isinstance(value, torch.Tensor) else value
                return ours(device.index, *args, **kwargs)
        return original(*args, **kwargs)

    return run


def _keep_random_state():
    """Extends PyTorch's higher-order operators for random state, which support a fixed list of devices without PrivateUse1. All backends run them."""
    key = torch._C.DispatchKey.BackendSelect
    for higher_order, ours in ((rng_prims.run_and_save_rng_state, _run_and_save_state), (rng_prims.run_with_rng_state, _run_with_state)):
        higher_order.py_kernels[key] = _choose_by_device(ours, higher_order.py_kernels[key])
        higher_order._dispatch_cache.clear()


# ---- without loop kernels


@functools.cache
def _say_once():
    warnings.warn("torch.compile on xpud: this daemon has no loop kernels, so the operators of graphs run one by one. Update the daemon.",
                  stacklevel=2)  # fmt: skip


def _run_by_operators(graph_module, example_inputs):
    """The compiler that AOTAutograd calls for forward and backward graphs."""
    for module in graph_module.modules():  # includes the bodies of control flow
        if isinstance(module, torch.fx.GraphModule):
            _keep_layouts(module.graph)
            module.recompile()
    return boxed_nop(graph_module, example_inputs)


def _compile_by_operators(graph, inputs):
    _say_once()
    # The default partition saves the same tensors for backward as eager execution. The min-cut partition recomputes, which pays only with fusion.
    return aot_autograd(fw_compiler=_run_by_operators, partition_fn=default_partition, keep_inference_input_mutations=True)(graph, inputs)


# ---- the backend


def compile_graph(graph, inputs, options=None, **kwargs):
    """Compiles a graph with xpud tensors. `options`: of Inductor, checked."""
    if not _C.loop_kernels_supported():
        return _compile_by_operators(graph, inputs)
    from . import inductor

    return inductor.compile_graph(graph, inputs, options, **kwargs)


def xpud(graph, inputs, mode=None, options=None, **kwargs):
    """The backend of torch.compile by name: Inductor, with its modes and options. Graphs without xpud tensors run as operators."""
    return compile_graph(graph, inputs, torch._TorchCompileInductorWrapper(mode, options, kwargs.pop("dynamic", None)).config, **kwargs)


# ---- the device interface


class XpudInterface(DeviceInterface):
    """torch.xpud, with the names that Dynamo and Inductor use."""

    device = api.device
    Event = api.Event
    Stream = api.Stream

    class Worker:
        """The interface of Inductor's compile workers. xpud has no workers, so this queries the device itself."""

        set_device = staticmethod(api.set_device)
        current_device = staticmethod(api.current_device)
        get_device_properties = staticmethod(api.get_device_properties)

    current_device = staticmethod(api.current_device)
    set_device = staticmethod(api.set_device)
    exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
    maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)
    device_count = staticmethod(api.device_count)
    is_available = staticmethod(api.is_available)
    stream = staticmethod(api.stream)
    current_stream = staticmethod(api.current_stream)
    set_stream = staticmethod(api.set_stream)
    synchronize = staticmethod(api.synchronize)
    memory_allocated = staticmethod(api.memory_allocated)
    is_bf16_supported = staticmethod(api.is_bf16_supported)

    @staticmethod
    def _set_stream_by_id(stream_id, device_index, device_type):
        api.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_raw_stream(device_idx):
        return api.current_stream(device_idx).stream_id

    @staticmethod
    def get_compute_capability(device=None):
        return ""


@functools.cache
def register():
    """Registers the backend's name and the device interface, once for each process."""
    _keep_random_state()
    register_backend(xpud, name="xpud")
    if translate.installed():  # the vendors' names, for programs that were written for hpu and xpu
        for name in ("hpu_backend", "ipex"):
            register_backend(xpud, name=name)
    trace_rules.add("torch_xpud")  # Dynamo must not trace this package: it calls the device, which fake tensors do not have
    register_interface_for_device("xpud", XpudInterface)  # not "xpud:0" ..: counting devices would make programs that compile for the CPU connect
