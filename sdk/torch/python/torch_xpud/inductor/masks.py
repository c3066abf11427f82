"""Attention masks that are known when a graph is compiled.

Where a model runs eagerly, transformers leaves out a mask that hides nothing, or says is_causal. While it is traced, it makes the mask: then attention
reads it, and the kernels without one, which are faster, are not used.
"""

import logging

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.utils._pytree import tree_leaves, tree_map

from .choices import stamp

log = logging.getLogger(__name__)
aten = torch.ops.aten

_FORWARD = aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = aten._scaled_dot_product_fused_attention_overrideable_backward.default
_MAX_ELEMENTS = 1 << 24  # of each tensor that is computed here


def _tensors(node):
    return (value for value in tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor))


def _is_small(tensor):
    return all(isinstance(size, int) for size in tensor.shape) and tensor.numel() <= _MAX_ELEMENTS


def _is_pure(node):
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    is_random = torch.Tag.nondeterministic_seeded in target.tags or target.name().startswith("aten::empty")
    return not target._schema.is_mutable and not is_random and all(map(_is_small, _tensors(node)))


class _Values:
    """The values of a graph's nodes that depend on no input, computed on the CPU."""

    def __init__(self):
        self._known = {}

    def of(self, node):
        """Returns None if it depends on an input, or is large."""
        waiting = [node]
        while waiting:
            at = waiting[-1]
            if at in self._known:
                waiting.pop()
                continue
            missing = [other for other in at.all_input_nodes if other not in self._known] if _is_pure(at) else []
            if missing:
                waiting += missing
                continue
            self._known[at] = self._compute(at)
            waiting.pop()
        return self._known[node]

    def _compute(self, node):
        inputs = [self._known.get(other) for other in node.all_input_nodes]
        if not _is_pure(node) or any(value is None for value in inputs):
            return None
        args, kwargs = tree_map(self._argument, (node.args, dict(node.kwargs)))
        return node.target(*args, **kwargs)

    def _argument(self, value):
        if isinstance(value, torch.fx.Node):
            return self._known[value]
        return torch.device("cpu") if isinstance(value, torch.device) else value


def _is_causal(bias):
    """Returns False if a bias hides nothing, True if it is that of is_causal, and None if it is neither."""
    if not bias.any():
        return False
    seen = torch.ones(bias.shape[-2:], dtype=torch.bool).tril()
    return True if ((bias == 0) == seen).all() and (seen | (bias <= torch.finfo(bias.dtype).min)).all() else None


class SimplifyMasks(CustomGraphPass):
    """Leaves out the bias of attention where it is known to hide nothing, and says is_causal where it is that."""

    def __call__(self, graph):
        values, known = _Values(), {}
        for node in graph.nodes:
            if node.op != "call_function" or node.target not in (_FORWARD, _BACKWARD):
                continue
            schema = node.target._schema.arguments
            arguments = dict(zip((argument.name for argument in schema), node.args)) | node.kwargs
            bias = arguments.get("attn_bias")
            if bias is None or arguments.get("is_causal") or (node.target is _BACKWARD and arguments["grad_input_mask"][3]):
                continue
            if bias not in known:
                with torch.utils._python_dispatch._disable_current_modes():
                    value = values.of(bias)
                    known[bias] = None if value is None else _is_causal(value)
            if known[bias] is None:
                continue
            log.info("an attention's mask is left out: it %s", "is that of is_causal" if known[bias] else "hides nothing")
            arguments |= {"attn_bias": None, "is_causal": known[bias]}
            node.args = tuple(arguments.get(argument.name, argument.default_value) for argument in schema if not argument.kwarg_only)
            node.kwargs = {argument.name: arguments[argument.name] for argument in schema if argument.kwarg_only and argument.name in arguments}

    def uuid(self):
        return stamp()
