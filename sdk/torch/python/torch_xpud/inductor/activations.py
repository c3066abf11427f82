"""Products that compute the activation of their result, where the device's library does so without another pass.

A graph has no gelu: Inductor takes it apart, and models write it in several ways. So an activation is recognised by its values: a function of a product's
elements that has gelu's values at many points is gelu. That is sound, because only analytic functions (`_FUNCTIONS`) are looked at.
"""

import logging
import math

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Node

from .. import _C
from .. import device as api
from .choices import stamp

log = logging.getLogger(__name__)
aten, prims = torch.ops.aten, torch.ops.prims
activated_product = torch.ops.xpud.activated_product.default


@torch.library.register_fake("xpud::activated_product")
def _(bias, a, b, activation):
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


_VIEWS = frozenset((aten.view.default, aten.reshape.default, aten._unsafe_view.default))
_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# Of numbers. Nodes with other operators end a search.
_FUNCTIONS = {
    aten.add.Tensor: lambda x, y, alpha=1: x + alpha * y,
    aten.sub.Tensor: lambda x, y, alpha=1: x - alpha * y,
    aten.mul.Tensor: lambda x, y: x * y,
    aten.div.Tensor: lambda x, y: x / y,
    aten.pow.Tensor_Scalar: math.pow,
    aten.neg.default: lambda x: -x,
    aten.erf.default: math.erf,
    aten.tanh.default: math.tanh,
    prims.convert_element_type.default: lambda x, dtype: x,
}
_POINTS = [x / 7 for x in range(-70, 71)]
_TOLERANCE = 1e-7
_ACTIVATIONS = {
    "gelu": [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in _POINTS],
    "gelu_tanh": [x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2 for x in _POINTS],
}


def _dtype(node):
    return node.meta["val"].dtype


def _keeps_precision(node, source):
    """Returns False where a program rounds the values of `source`."""
    dtype = _dtype(node)
    return dtype == _dtype(source) or (dtype.is_floating_point and dtype.itemsize > max(_dtype(source).itemsize, 2))


def _values(node, known):
    """Returns a node's values at all points, or None."""
    function = _FUNCTIONS.get(node.target)
    if function is None or any(other not in known for other in node.all_input_nodes):
        return None
    at = [{other: known[other][i] for other in node.all_input_nodes} for i in range(len(_POINTS))]
    try:
        return [function(*(values.get(each, each) if isinstance(each, Node) else each for each in node.args), **node.kwargs) for values in at]
    except (ArithmeticError, ValueError, TypeError):
        return None


def _name_of(values):
    for name, wanted in _ACTIVATIONS.items():
        if all(abs(value - each) <= _TOLERANCE for value, each in zip(values, wanted)):
            return name
    return None


class _Function:
    """The nodes that compute functions of `source` alone, in the graph's order."""

    def __init__(self, source):
        self._source, self._known = source, {source: _POINTS}
        waiting = list(source.users)
        while waiting:
            node = waiting.pop(0)
            if node in self._known or not isinstance(node.meta.get("val"), torch.Tensor) or not _keeps_precision(node, source):
                continue
            values = _values(node, self._known)
            if values is not None:
                self._known[node] = values
                waiting += node.users  # which may have been seen before the values of another input were known

    def activation(self):
        """Returns the last node that is an activation and its name, if no other node needs what is computed before it. Else None."""
        for node, values in reversed(self._known.items()):
            name = _name_of(values) if _dtype(node) == _dtype(self._source) and node is not self._source else None
            if name is not None and self._is_alone(node):
                return node, name
        return None

    def _is_alone(self, result):
        needed, waiting = {result}, [result]
        while waiting:
            for node in waiting.pop().all_input_nodes:
                if node not in needed:
                    needed.add(node)
                    waiting += [node] if node is not self._source else []
        return all(user in needed for node in needed if node is not result for user in node.users)


def _activation_of(source):
    """Returns the node that is an activation of `source`, and its name, or None."""
    users = list(source.users)
    if [user.target for user in users] == [aten.relu.default]:
        return users[0], "relu"
    return _Function(source).activation()


def _erase_unused(graph, first, last):
    """Erases what nothing uses of a product, its activation, and what is computed between them."""
    node = last
    while node is not first:
        before = node.prev
        if not node.users and (node.target in _FUNCTIONS or node is last):
            graph.erase_node(node)
        node = before
    graph.erase_node(first)


def _operands(node):
    """Returns the bias, or None, and the factors of a product that can have an activation. Returns None for other nodes."""
    if node.target in (aten.mm.default, aten.bmm.default) and not node.kwargs:
        return None, *node.args
    if node.target is aten.addmm.default and all(factor == 1 for factor in node.kwargs.values()) and len(node.args) == 3:
        bias = node.args[0].meta["val"]
        return node.args if bias.dim() == 1 else None
    return None


def _is_on_xpud(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "xpud" and value.dtype in _TYPES


class GiveActivations(CustomGraphPass):
    """Replaces products and their activations by one operator. Its id has what the devices' libraries know."""

    def __call__(self, graph):
        if config.emulate_precision_casts:  # the product is rounded before its activation
            return
        for node in list(graph.nodes):
            operands = _operands(node) if node.op == "call_function" and _is_on_xpud(node) else None
            if operands is not None:
                self._give(graph, node, operands)

    def _give(self, graph, product, operands):
        source = product
        while len(source.users) == 1 and (user := next(iter(source.users))).target in _VIEWS:
            source = user
        found = _activation_of(source)
        if found is None or found[1] not in _C.product_activations(product.meta["val"].device.index):
            return
        result, name = found
        with graph.inserting_after(product):
            activated = graph.call_function(activated_product, (*operands, name))
        activated.meta.update(product.meta)
        result.replace_all_uses_with(source)
        product.replace_all_uses_with(activated)
        _erase_unused(graph, product, result)
        log.info("%s computes %s", product.target, name)

    def uuid(self):
        return stamp(), tuple(tuple(_C.product_activations(index)) for index in range(api.device_count()))
