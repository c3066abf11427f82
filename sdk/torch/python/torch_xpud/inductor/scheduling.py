"""Inductor's scheduling for xpud: which nodes are fused, and the loop kernel of a group of fused nodes."""

import logging
import time

import sympy
import torch
from torch._inductor import config, ir, metrics
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.scheduler import BaseScheduling, ForeachKernelSchedulerNode, FusedSchedulerNode, SchedulerNode
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata, sympy_index_symbol_with_prefix, sympy_product
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.functions import FloorDiv, ModularIndexing
from torch.utils._sympy.symbol import SymT

from .kernel_bytes import MAX_ARGUMENTS, MAX_BODIES, MAX_DIMENSIONS, MAX_STATEMENTS, Body, IndexOp, Kernel, TooLarge
from .ops_handler import KernelBuilder, LoopOps, NeedsOwnBody, Unsupported
from .runtime import loop_kernel

log = logging.getLogger(__name__)
_PROGRESS_INTERVAL = 5.0  # seconds

# Fusion leaves room: an operation can become several statements.
_MAX_FUSED_BUFFERS = MAX_ARGUMENTS // 2 - 8
_MAX_FUSED_OPERATIONS = MAX_STATEMENTS // 4


# ---- ranges


def _simplify(expression):
    return V.graph.sizevars.simplify(expression)


def _equal(a, b):
    return a == b or _simplify(a - b) == 0


def _multiple(a, b):
    """Returns a / b if that is a number of a static or symbolic size, else None."""
    if b == 0 or not V.graph.sizevars.statically_known_multiple_of(a, b):
        return None
    quotient = _simplify(FloorDiv(a, b))
    return quotient if _equal(quotient * b, a) else None


def _refine(ranges, other):
    """Returns the coarsest row-major division of both, which have the same number of points. Returns None if the boundaries do not nest."""
    left, right = [r for r in ranges if r != 1], [r for r in other if r != 1]
    refined = []
    while left and right:
        a, b = left.pop(), right.pop()
        if _equal(a, b):
            refined.append(a)
        elif (quotient := _multiple(a, b)) is not None:
            refined.append(b)
            left.append(quotient)
        elif (quotient := _multiple(b, a)) is not None:
            refined.append(a)
            right.append(quotient)
        else:
            return None
    return refined[::-1] if not left and not right else None


def _common_ranges(nodes, numel, rnumel):
    """Returns the outer and the reduced extents that the nodes' ranges divide, or None if there are none."""
    outer, reduced = _split([numel], numel), _split([rnumel], rnumel)
    for node in nodes:
        sizes, reduce_sizes = node.get_ranges()
        if node.is_reduction():
            there, inside = list(sizes), list(reduce_sizes)
        else:
            there, inside = _divide(list(sizes), numel, rnumel)
            if there is None:
                return None
        outer = _refine(outer, there)
        if inside is not None and reduced is not None:
            reduced = _refine(reduced, inside)
        if outer is None or reduced is None:
            return None
    if any(_is_scan(node) for node in nodes) and len(reduced) > 1:
        return None  # a scan is of the last dimension
    return (outer, reduced) if len(outer) + len(reduced) <= MAX_DIMENSIONS else None


def _split(ranges, numel):
    return [] if numel == 1 else ranges


def _divide(sizes, numel, rnumel):
    """Divides a pointwise node's ranges into those outside and inside of the reduction. Inside is None for a node that runs once for each row."""
    if rnumel == 1 or (_equal(sympy_product(sizes), numel) and not _equal(numel * rnumel, numel)):
        return sizes, None
    inside, left = [], rnumel
    sizes = list(sizes)
    while sizes and not _equal(left, 1):
        size = sizes.pop()
        if (rest := _multiple(left, size)) is not None:
            inside.append(size)
            left = rest
        elif (rest := _multiple(size, left)) is not None:
            inside.append(left)
            sizes.append(rest)
            left = sympy.S.One
        else:
            return None, None
    return (sizes, inside[::-1]) if _equal(left, 1) else (None, None)


def _is_scan(node):
    return isinstance(node.node, ir.ComputedBuffer) and isinstance(node.node.data, ir.Scan)


def _decompose(iterators, extents, ranges):
    """Returns the positions in `ranges` as expressions of iterators over `extents`, which have as many points."""
    positions, at = [], len(extents)
    for size in reversed(ranges):  # row-major, where the iterators divide the range
        if size == 1:
            positions.append(sympy.S.Zero)
            continue
        expression, factor, left = sympy.S.Zero, sympy.S.One, size
        while at > 0 and not _equal(left, 1):
            rest = _multiple(left, extents[at - 1])
            if rest is None:
                return _decompose_linear(iterators, extents, ranges)
            at -= 1
            expression += iterators[at] * factor
            factor, left = factor * extents[at], rest
        if not _equal(left, 1):
            return _decompose_linear(iterators, extents, ranges)
        positions.append(expression)
    return positions[::-1]


def _decompose_linear(iterators, extents, ranges):
    linear = sympy.S.Zero
    for iterator, extent in zip(iterators, extents):
        linear = linear * extent + iterator
    positions, factor = [], sympy.S.One
    for number, size in enumerate(reversed(ranges)):
        if size == 1:
            positions.append(sympy.S.Zero)
        elif number + 1 == len(ranges):
            positions.append(FloorDiv(linear, factor))
        else:
            positions.append(ModularIndexing(linear, factor, size))
        factor *= size
    return positions[::-1]


# ---- kernels


class _KernelCode:
    """The kernel of a group of nodes, while it is built."""

    def __init__(self, nodes, numel, rnumel, scheduler):
        self.nodes, self.numel, self.rnumel, self.scheduler = nodes, numel, rnumel, scheduler
        self.removed = OrderedSet()

    def build(self):
        """Returns the Kernel. Uses one body if the nodes allow it, and otherwise as few as a pass over the nodes finds."""
        starts, joins_parts = [0], True
        fused = OrderedSet(name for node in self.nodes for name in node.get_operation_names())
        local = OrderedSet(name for node in self.nodes for name in node.get_buffer_names()
                           if self.scheduler.can_buffer_be_removed_through_fusion(name, fused))  # fmt: skip
        while True:
            try:
                return self._build(starts, local, joins_parts)
            except NeedsOwnBody as found:  # of one node
                if not joins_parts:
                    error = Unsupported(f"reading and writing {found} at different positions")
                    error.operators = _operators(self.nodes)
                    raise error from None
                joins_parts = False  # it reads one part of a buffer and writes another
            except _Split as split:
                starts = sorted({*starts, split.at})
                if len(starts) > MAX_BODIES:
                    raise TooLarge(f"more than {MAX_BODIES} bodies") from None

    def _build(self, starts, local, joins_parts):
        builder = KernelBuilder(joins_parts)
        ends = [*starts[1:], len(self.nodes)]
        parts = [self.nodes[start:end] for start, end in zip(starts, ends)]
        written_by = {name: number for number, part in enumerate(parts) for node in part for name in node.get_buffer_names()}
        across = OrderedSet(read.name for number, part in enumerate(parts) for node in part for read in node.read_writes.reads
                            if written_by.get(read.name, number) != number)  # fmt: skip
        removed = local - across
        for start, part in zip(starts, parts):
            self._add_body(builder, start, part, removed)
        self.removed = removed
        return Kernel(builder.bodies, builder.sizes)

    def _add_body(self, builder, start, nodes, removed):
        rnumel = self.rnumel if any(node.is_reduction() for node in nodes) else sympy.S.One
        numel = self.numel if rnumel != 1 or len(nodes) == 1 and not nodes[0].is_reduction() else sympy_product(nodes[0].get_ranges()[0])
        if rnumel == 1:
            numel = _simplify(sympy_product(nodes[0].get_ranges()[0]))
            for number, node in enumerate(nodes):
                if not _equal(sympy_product(node.get_ranges()[0]), numel):
                    raise _Split(start + number)
        ranges = _common_ranges(nodes, numel, rnumel)
        if ranges is None:
            if len(nodes) == 1:
                ranges = tuple([size for size in sizes if size != 1] for sizes in nodes[0].get_ranges())
            else:
                raise _Split(start + len(nodes) - 1)
        outer, reduced = ranges
        if not reduced and rnumel != 1:
            reduced = [rnumel]
        if any(node.is_reduction() for node in nodes) and not reduced:
            reduced = [sympy.S.One]
        body = Body()
        symbols = [sympy_index_symbol_with_prefix(SymT.INDEX, number) for number in range(len(outer) + len(reduced))]
        extents = [*outer, *reduced]
        stores = {name for node in nodes for name in node.get_buffer_names() if name not in removed}
        ops = LoopOps(builder, body, zip(symbols, extents), stores)
        body.outer = len(outer)
        for symbol, extent in zip(symbols, extents):
            body.add_dimension(ops.indices.write(_simplify(extent)))
        for number, symbol in enumerate(symbols):
            ops.indices.symbols[symbol] = body.node(IndexOp.ITERATOR, number)
        outer_symbols, reduced_symbols = symbols[: len(outer)], symbols[len(outer) :]
        for number, node in enumerate(nodes):
            sizes, reduce_sizes = node.get_ranges()
            if node.is_reduction():
                at = (_decompose(outer_symbols, outer, sizes), _decompose(reduced_symbols, reduced, reduce_sizes))
            elif reduced and not _equal(sympy_product(sizes), sympy_product(outer)):
                at = (_decompose(symbols, extents, sizes), [])
            else:
                at = (_decompose(outer_symbols, outer, sizes), [])
            ops.node, ops.points = node, _simplify(sympy_product(sizes) * (sympy_product(reduce_sizes) if _is_scan(node) else 1))
            try:
                with V.set_ops_handler(ops):
                    node._body(*at)
            except Unsupported as error:
                error.operators = _operators([node])
                raise
            except NeedsOwnBody:
                if number == 0:
                    raise
                raise _Split(start + number) from None
        builder.bodies.append(body)


def _operators(nodes):
    """Returns the operators of the graph that nodes came from."""
    return [origin.target for node in nodes for origin in node.node.get_origins() if isinstance(origin.target, torch._ops.OpOverload)]


def _first_call(kernel, device):
    """Returns the arguments of `loop_kernel` for the kernel's first call; none if its sizes depend on data."""
    try:
        sizes = [_hint(size) for size in kernel.sizes]
        elements = [1 if operand.is_scalar else _extent(V.graph.try_get_buffer(operand.argument).get_layout()) for operand in kernel.operands]
    except (AttributeError, NotImplementedError, _Unknown):  # a buffer without a layout
        return ()
    return device.index or 0, sizes, elements


def _extent(layout):
    """Returns the number of elements from the first to the last one of a tensor."""
    sizes, strides = [_hint(size) for size in layout.size], [_hint(stride) for stride in layout.stride]
    return 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def _hint(size):
    if free_unbacked_symbols(size):
        raise _Unknown
    sizevars = V.graph.sizevars
    return int(sizevars.optimization_hint(size) if hasattr(sizevars, "optimization_hint") else sizevars.size_hint(size))  # torch 2.11


class _Unknown(Exception):
    """A size depends on data."""


class _Split(Exception):
    """Node number `at` begins a new body."""

    def __init__(self, at):
        super().__init__(at)
        self.at = at


# ---- fusion


class _Progress:
    """Says at INFO how many of a graph's kernels were written, if that takes long."""

    def __init__(self, scheduler):
        self._scheduler, self._written, self._said = scheduler, 0, time.monotonic()

    def note(self):
        """One more group of nodes was written."""
        self._written += 1
        now = time.monotonic()
        if now - self._said >= _PROGRESS_INTERVAL:
            self._said = now
            groups = sum(isinstance(node, (SchedulerNode, FusedSchedulerNode)) and node.get_device().type == "xpud" for node in self._scheduler.nodes)
            log.info("%d of %d kernels", self._written, groups)


class Scheduling(BaseScheduling):
    """Chooses what is fused, and writes each group as one loop kernel."""

    def __init__(self, scheduler):
        super().__init__(scheduler)
        self._progress = _Progress(scheduler)

    def get_backend_features(self, device):
        features = BackendFeature.BUCKETIZE, BackendFeature.MASKED_SCATTER_WITH_INDEX, BackendFeature.SCAN, BackendFeature.REDUCE_TO_SINGLE_ELEMENT
        return OrderedSet(features)

    def group_fn(self, sizes):
        return tuple(_simplify(sympy_product(size)) for size in sizes)

    def can_fuse(self, node1, node2):
        if isinstance(node1, ForeachKernelSchedulerNode) or isinstance(node2, ForeachKernelSchedulerNode):
            return False
        nodes = [*node1.get_nodes(), *node2.get_nodes()]
        if not all(isinstance(node, SchedulerNode) for node in nodes):
            return False
        _, (numel1, rnumel1) = node1.group
        _, (numel2, rnumel2) = node2.group
        if node1.is_reduction() == node2.is_reduction():
            if numel1 != numel2 or rnumel1 != rnumel2:
                return False
            numel, rnumel = numel1, rnumel1
        else:
            pointwise, (numel, rnumel) = (numel2, (numel1, rnumel1)) if node1.is_reduction() else (numel1, (numel2, rnumel2))
            if pointwise != numel and not _equal(pointwise, numel * rnumel):
                return False
        return self._fits(nodes) and _common_ranges(nodes, numel, rnumel) is not None

    can_fuse_vertical = can_fuse
    can_fuse_horizontal = can_fuse

    def _fits(self, nodes):
        names = OrderedSet(dep.name for node in nodes for dep in node.read_writes.reads_and_writes())
        operations = sum(sum(node._body.op_counts.values()) for node in nodes)
        return len(names) <= _MAX_FUSED_BUFFERS and operations <= _MAX_FUSED_OPERATIONS

    # -- code

    def codegen_node(self, node):
        nodes = [each for each in node.get_nodes() if each.get_name() not in self.scheduler.removed_ops]
        if nodes:
            self._codegen_nodes(nodes)
        self._progress.note()
        self.free_buffers_in_scheduler()

    def _codegen_nodes(self, nodes):
        numel, rnumel = max(nodes, key=lambda each: int(each.is_reduction())).group[1]
        code = _KernelCode(nodes, numel, rnumel, self.scheduler)
        try:
            kernel = code.build()
        except TooLarge as error:
            if len(nodes) == 1:
                unsupported = Unsupported(f"a kernel of {error}")
                unsupported.operators = _operators(nodes)
                raise unsupported from None
            middle = len(nodes) // 2
            self._codegen_nodes(nodes[:middle])
            self._codegen_nodes(nodes[middle:])
            return
        V.graph.removed_buffers |= code.removed
        for each in nodes:
            each.mark_run()
        if kernel.bodies:
            name = self._define(kernel, nodes)
            self.codegen_comment(nodes, name)
            V.graph.wrapper_code.call_loop_kernel(name, kernel)

    def _define(self, kernel, nodes):
        wrapper = V.graph.wrapper_code
        scalars = ", ".join(map(str, kernel.scalar_types()))
        key = f"{kernel.bytes!r}, [{scalars}]"
        if key in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[key]
        metrics.generated_kernel_count += 1
        fused = get_fused_kernel_name(nodes, config.triton.descriptive_names) if config.triton.descriptive_names else ""
        name = "_".join(filter(None, ("loop", fused, wrapper.next_kernel_suffix())))
        wrapper.src_to_kernel[key] = name
        origins, detailed = get_kernel_metadata(nodes, wrapper)
        text = "\n".join(f"#   {line}" for line in kernel.text().splitlines())
        call = _first_call(kernel, nodes[0].get_device())
        loop_kernel(kernel.bytes, name, kernel.scalar_types(), *call)  # the daemon compiles while the next kernel is written
        arguments = "".join(f", {argument}" for argument in call)
        wrapper.define_kernel(name, f"loop_kernel({kernel.bytes!r}, {name!r}, [{scalars}]{arguments})", f"{origins}\n{detailed}\n{text}", gpu=False)
        return name

    def codegen_sync(self):
        V.graph.wrapper_code.writeline("torch.xpud.synchronize()")

    def flush(self):
        pass

    def ready_to_flush(self):
        return False
