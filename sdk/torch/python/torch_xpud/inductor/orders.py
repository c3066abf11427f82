"""The order of pointwise loops, so that they can be fused with reductions over outer dimensions: of batch norm, or of softmax over columns.

Inductor fuses a loop with the reduction that it reads if the reduction's dimensions are its outer ones. `OrderLoops` makes them so before fusion.
`RestoreLoops` takes that back where no reduction was fused.
"""

import sympy
from torch._inductor.loop_body import MemoryUsageType
from torch._inductor.scheduler import SchedulerNode

from .choices import stamp

try:
    from torch._inductor.custom_graph_pass import CustomSchedulerPass
except ImportError:  # torch 2.11, which takes graph passes here
    from torch._inductor.custom_graph_pass import CustomGraphPass as CustomSchedulerPass


def _is_reduction(node):
    return isinstance(node, SchedulerNode) and node.is_reduction()


def _outer_dimensions(node, name):
    """Returns the dimensions that the index of a buffer uses, from the outermost one on. Returns None if it is no sum of multiples of them."""
    body = node._body
    indices = {body.indexing_exprs[entry.index_name] for entry in body.memory_usage[MemoryUsageType.LOAD] if entry.buffer_name == name}
    if len(indices) != 1:
        return None
    (index,) = indices
    strides = {}
    for number, symbol in enumerate(body.iter_vars):
        if symbol in index.free_symbols:
            stride = index.coeff(symbol)
            if not stride.is_number:
                return None
            strides[number] = stride
    if sympy.expand(index - sum(stride * body.iter_vars[number] for number, stride in strides.items())) != 0:
        return None
    return sorted(strides, key=lambda number: -strides[number])


def _order_for(node, producers):
    """Returns the order of a pointwise node's loops that lets it be fused with the reductions it reads, or None if it has it, or there is none."""
    wanted = None
    _, (numel, _) = node.group
    for read in node.read_writes.reads:
        producer = producers.get(read.name)
        if producer is None:
            continue
        _, (rows, columns) = producer.group
        if rows == 1 or numel != rows * columns:
            continue
        outer = _outer_dimensions(node, read.name)
        if not outer or (wanted is not None and outer != wanted):
            return None
        wanted = outer
    if wanted is None or wanted == list(range(len(wanted))):
        return None
    return [*wanted, *(number for number in range(len(node._body.iter_vars)) if number not in wanted)]


def _reorder(node, order):
    node.apply_new_loop_order(order)
    node.refresh_dependencies(normalize=True, need_clear_tiling_cache=True)  # as the other nodes' are, with which they are compared


class OrderLoops(CustomSchedulerPass):
    """Runs before fusion."""

    def __call__(self, nodes):
        producers = {name: node for node in nodes if _is_reduction(node) for name in node.get_buffer_names()}
        for node in nodes:
            if isinstance(node, SchedulerNode) and not node.is_reduction() and node.get_device().type == "xpud":
                order = _order_for(node, producers)
                if order is not None:
                    _reorder(node, order)
                    node.xpud_order = order
        return nodes

    def uuid(self):
        return stamp()


class RestoreLoops(CustomSchedulerPass):
    """Runs after fusion."""

    def __call__(self, nodes):
        for node in nodes:
            parts = [part for part in node.get_nodes() if getattr(part, "xpud_order", None) is not None]
            if parts and not any(_is_reduction(part) for part in node.get_nodes()) and len({tuple(part.xpud_order) for part in parts}) == 1:
                if len(parts) == len(node.get_nodes()):
                    for part in parts:
                        _reorder(part, sorted(range(len(part.xpud_order)), key=part.xpud_order.__getitem__))
        return nodes

    def uuid(self):
        return stamp()


# The scripts that PyTorch writes to reproduce a failure import this by its name, and by that our back end.
restore_loops = RestoreLoops()
restore_loops.__name__ = "restore_loops"
