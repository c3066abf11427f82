"""Which operators of a graph run as operators, because kernels cannot express them."""

import contextvars
import copy
import functools
import hashlib
import logging
import operator
import pathlib
import re

import torch
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.exc import LoweringException
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from .kernel_bytes import DTYPES, VERSION
from .ops_handler import Unsupported

log = logging.getLogger(__name__)
aten = torch.ops.aten

# Loops of these have scans or functions that the language lacks.
_OPERATORS = frozenset((aten.logcumsumexp, aten.cummax, aten.cummin, aten.special_spherical_bessel_j0, aten.polygamma))
_SEARCHES = frozenset((aten.bucketize, aten.searchsorted))


def _tensors(values):
    """The fake tensors of FX arguments."""
    for value in tree_leaves(values):
        value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield leaf


# Those of the graph that is compiled, found when its loops were written: see compile_loops.
_found = contextvars.ContextVar("found", default=frozenset())


def _reason(node):
    """Returns why a node runs as an operator, or None."""
    packet = node.target.overloadpacket
    if packet in _OPERATORS or str(node.target) in _found.get():
        return "there is no loop kernel for it"
    tensors = list(_tensors((node.args, node.kwargs, node)))
    for tensor in tensors:
        if tensor.dtype not in DTYPES and tensor.device.type == "xpud" and not tensor.is_complex():
            return f"elements of {tensor.dtype}"
    if packet in _SEARCHES:
        inputs = list(_tensors((node.args, node.kwargs)))
        if len({tensor.dtype for tensor in inputs[:2]}) > 1 or node.kwargs.get("sorter") is not None:
            return "a search among values of another type, or with a sorter"
    return None


def _is_view(target):
    return any(result.alias_info is not None and not result.alias_info.is_write for result in target._schema.returns)


def _on_cpu(node):
    tensors = list(_tensors((node.args, node.kwargs)))
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


def _divide_lists(graph):
    """Divides `_foreach_` operators of CPU tensors into one operator for each tensor. Inductor makes them change their inputs, and has no operator
    for that."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or not _on_cpu(node):
            continue
        name, made = node.target.overloadpacket.__name__, node.meta.get("val")
        if not name.startswith("_foreach_") or not isinstance(made, (list, tuple)) or any(user.target is not operator.getitem for user in node.users):
            continue
        packet = getattr(aten, name.removeprefix("_foreach_"), None)
        if packet is None:
            continue
        for user in list(node.users):
            i = user.args[1]
            args = [each[i] if isinstance(each, (list, tuple)) else each for each in node.args]
            fakes = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in args]
            overload = getattr(packet, torch._C._jit_resolve_packet(packet._qualified_op_name, *fakes, **node.kwargs) or "default")
            with graph.inserting_before(node):
                each = graph.call_function(overload, tuple(args), dict(node.kwargs))
            each.meta.update(node.meta, val=made[i])
            user.replace_all_uses_with(each)
            graph.erase_node(user)
        graph.erase_node(node)


class ChooseOperators(CustomGraphPass):
    """Marks the nodes that run as operators. Its id makes the emitter's version part of the keys of Inductor's caches."""

    def __call__(self, graph):
        _divide_lists(graph)
        for node in graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or _is_view(node.target):
                continue
            if node.target.namespace not in ("aten", "prims"):
                continue
            reason = _reason(node)
            if reason is not None:
                log.info("%s runs as an operator: %s", node.target, reason)
                node.meta["should_fallback"] = True

    def uuid(self):
        return stamp(), tuple(sorted(_found.get()))


def _chain(error):
    """Yields an error and what it was raised for."""
    while error is not None:
        yield error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__


def _refused(error):
    """Returns the operators, by name, whose loops cannot be written, and why. Returns none for an error that has another cause."""
    for each in _chain(error):
        if isinstance(each, Unsupported):
            return frozenset(map(str, each.operators)), f"loop kernels have no {each}"
    for each in _chain(error):
        if isinstance(each, LoweringException):  # which Inductor's own lowering raised, as for some symbolic sizes
            found = re.search(r"^  target: ((?:aten|prims)\.\S+)$", str(each), re.MULTILINE)
            if found:
                return frozenset(found.groups()), f"Inductor cannot lower it: {str(each).splitlines()[0]}"
    return frozenset(), ""


def compile_loops(graph_module, example_inputs, **kwargs):
    """Compiles a graph of ATen operators. If a loop cannot be written as a kernel, or Inductor cannot lower an operator, compiles the graph again, and
    runs the loop's operators as operators."""
    found = _found.get()
    graph = copy.deepcopy(graph_module.graph)  # Inductor changes the graph
    try:
        return compile_fx_inner(graph_module, example_inputs, **kwargs)
    except Exception as error:
        operators, reason = _refused(error)
        more = operators - found
        if not more:
            raise
        log.info("loops of %s run as operators: %s", ", ".join(sorted(more)), reason)
    graph_module.graph = graph
    token = _found.set(found | more)
    try:
        return compile_loops(graph_module, example_inputs, **kwargs)
    finally:
        _found.reset(token)


class SaveBeforeMutation(CustomGraphPass):
    """Saves for the backward pass what is computed from an input that the forward pass then changes. Inductor's partitioner would compute it again,
    from the changed input: a wrong gradient, on all devices (torch 2.13)."""

    def __call__(self, graph):
        changed = [node.args[0] for node in graph.nodes if node.target is aten.copy_.default and node.args[0].op == "placeholder"]
        while changed:
            source = changed.pop()
            for user in source.users:
                if user.op != "call_function" or user.target is aten.copy_.default:
                    continue
                if isinstance(user.target, torch._ops.OpOverload) and _is_view(user.target):
                    changed.append(user)
                else:
                    user.meta["recompute"] = CheckpointPolicy.MUST_SAVE

    def uuid(self):
        return stamp()


class InTurn(CustomGraphPass):
    """Several passes as one: torch 2.11 takes no list of them."""

    def __init__(self, *passes):
        self._passes = passes

    def __call__(self, graph):
        for one in self._passes:
            one(graph)

    def uuid(self):
        """None if a pass has no id: then graphs are not cached."""
        ids = tuple(one.uuid() if isinstance(one, CustomGraphPass) else None for one in self._passes)
        return None if None in ids else ids


@functools.cache
def stamp():
    """A digest of the emitter and the version of the language."""
    digest = hashlib.sha256(str(VERSION).encode())
    for file in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()
