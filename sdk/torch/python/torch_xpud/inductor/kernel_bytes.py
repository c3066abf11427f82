"""Loop kernels as a client builds them: statements and index expressions, and their canonical bytes.

The language is that of proto/loops/kernel.h, the bytes are those of proto/loops/codec.h. A `Kernel` drops what is not used, so that what it encodes
passes CheckKernel: no unused operand, statement or index node, and each index node once.
"""

import contextlib
import enum
import struct

import torch

VERSION = 1  # of the language: kVersion of codec.h

# Limits of kernel.h.
MAX_ARGUMENTS, MAX_BODIES, MAX_STATEMENTS, MAX_INDICES = 128, 64, 4096, 1024
MAX_DIMENSIONS, MAX_MASK_DEPTH, MAX_KERNEL_BYTES = 8, 8, 60 << 10
MAX_INDIRECTS = 16  # of an index: check.cc

# Wire numbers of element types (proto/ops/dtype.h).
DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBER_OF_DTYPE = {dtype: number for number, dtype in enumerate(DTYPES)}
INTEGERS = frozenset(DTYPES[1:6])
REALS = frozenset((torch.float32, torch.float64))


def compute_type(dtype):
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def type_name(dtype):
    return str(dtype).removeprefix("torch.")


class Role(enum.IntEnum):
    SCALAR = 0
    READ = 1
    WRITTEN = 2
    UPDATED = 3


class IndexOp(enum.IntEnum):
    CONSTANT = 0
    ITERATOR = 1
    SIZE = 2
    INDIRECT = 3
    ADD = 4
    MUL = 5
    FLOOR_DIV = 6
    MOD = 7
    MIN = 8
    MAX = 9
    ABS = 10


class Kind(enum.IntEnum):
    CONSTANT = 0
    SCALAR = 1
    LOAD = 2
    STORE = 3
    ATOMIC_ADD = 4
    CALL = 5
    CONVERT = 6
    ROUND = 7
    BITCAST = 8
    INDEX_VALUE = 9
    INDIRECT = 10
    REDUCE = 11
    SCAN = 12
    PART = 13
    MASK = 14
    UNMASK = 15
    RANDOM = 16
    SEARCH = 17
    ASSERT = 18


# Functions by wire number (proto/loops/functions.inc), with the number of their operands and their kind.
_FUNCTION_TABLE = """
add 2 numeric, sub 2 numeric, mul 2 numeric, div 2 floating, neg 1 numeric, eq 2 comparison, ne 2 comparison, lt 2 comparison, le 2 comparison,
gt 2 comparison, ge 2 comparison, logical_not 1 logical, logical_and 2 logical, logical_or 2 logical, bitwise_and 2 bits, bitwise_or 2 bits,
bitwise_xor 2 bits, bitwise_not 1 bits, shift_left 2 integer, shift_right 2 integer, abs 1 numeric, sqrt 1 floating, rsqrt 1 floating, exp 1 floating,
exp2 1 floating, expm1 1 floating, log 1 floating, log2 1 floating, log10 1 floating, log1p 1 floating, sin 1 floating, cos 1 floating,
tan 1 floating,
asin 1 floating, acos 1 floating, atan 1 floating, sinh 1 floating, cosh 1 floating, tanh 1 floating, asinh 1 floating, acosh 1 floating,
atanh 1 floating, erf 1 floating, erfc 1 floating, erfinv 1 floating, lgamma 1 floating, sigmoid 1 floating, floor 1 floating, ceil 1 floating,
round 1 floating, trunc 1 floating, sign 1 numeric, min 2 numeric, max 2 numeric, fmin 2 floating, fmax 2 floating, pow 2 numeric, atan2 2 floating,
fmod 2 numeric, remainder 2 numeric, floordiv 2 numeric, truncdiv 2 numeric, hypot 2 floating, copysign 2 floating, where 3 selection,
isnan 1 predicate, isinf 1 predicate, isfinite 1 predicate, fma 3 floating, digamma 1 floating, zeta 2 floating, igamma 2 floating,
igammac 2 floating,
erfcx 1 floating, logndtr 1 floating, ndtri 1 floating, i0 1 floating, i1 1 floating, i0e 1 floating, i1e 1 floating, k0 1 floating, k1 1 floating,
k0e 1 floating, k1e 1 floating, j0 1 floating, j1 1 floating, y0 1 floating, y1 1 floating, mantissa 1 floating, exponent 1 floating,
nextafter 2 floating, airy 1 floating, chebt 2 floating, chebu 2 floating, chebv 2 floating, chebw 2 floating, hermh 2 floating, herme 2 floating,
laguerre 2 floating, legendre 2 floating, gcd 2 integer, lcm 2 integer
"""
FUNCTIONS = {}
for _number, _entry in enumerate(_FUNCTION_TABLE.replace("\n", " ").split(",")):
    _name, _arity, _kind = _entry.split()
    FUNCTIONS[_name] = (_number, int(_arity), _kind)

# Reductions by wire number: how many values they take and give, and whether there is a scan of them.
REDUCTIONS = {
    "sum": (0, 1, 1, True),
    "product": (1, 1, 1, True),
    "min": (2, 1, 1, True),
    "max": (3, 1, 1, True),
    "xor": (4, 1, 1, True),
    "any": (5, 1, 1, True),
    "argmin": (6, 2, 2, True),
    "argmax": (7, 2, 2, True),
    "welford": (8, 1, 3, False),
    "welford_combine": (9, 3, 3, False),
    "online_softmax": (10, 1, 2, False),
}
RANDOMS = ("rand", "randn", "randint")
UNIFORM, NORMAL, BITS = range(3)


class Operand:
    """A buffer, or a number that is passed by value. `argument`: the wrapper's name of the buffer or of a tensor on the CPU, or the expression of a
    number. Its role is known when the kernel is complete."""

    def __init__(self, argument, dtype, is_scalar=False, is_cpu_tensor=False):
        self.argument, self.dtype, self.is_scalar, self.is_cpu_tensor = argument, dtype, is_scalar or is_cpu_tensor, is_cpu_tensor
        self.covered = False  # whether stores write all elements of the buffer


class Index:
    """A node of an index expression. `a` is a number (iterator, size), a statement (indirect) or a node; `b` is a node."""

    __slots__ = ("op", "a", "b", "constant")

    def __init__(self, op, a, b, constant):
        self.op, self.a, self.b, self.constant = op, a, b, constant


class Statement:
    """A statement and its value. `dtype` is the compute type of the value, or None if there is none."""

    __slots__ = ("kind", "dtype", "type", "source", "function", "reduction", "flag", "operand", "index", "bound", "values", "number", "real", "block",
                 "keep")  # fmt: skip

    def __init__(self, kind, dtype=None, *, type=None, source=None, function=None, reduction=None, flag=False, operand=None, index=None, bound=None,
                 values=(), number=0, real=0.0, keep=False):
        self.kind, self.dtype, self.type, self.source, self.function, self.reduction = kind, dtype, type, source, function, reduction
        self.flag, self.operand, self.index, self.bound, self.values = flag, operand, index, bound, tuple(values)
        self.number, self.real, self.keep = number, real, keep
        self.block = None  # of a mask: the statements that run under it

    def key(self):
        real = struct.pack("<d", self.real)
        return (self.kind, self.dtype, self.type, self.source, self.function, self.reduction, self.flag, id(self.operand), id(self.index),
                id(self.bound), tuple(map(id, self.values)), self.number, real, self.keep)  # fmt: skip


_REPEATABLE = frozenset((Kind.CONSTANT, Kind.SCALAR, Kind.LOAD, Kind.CALL, Kind.CONVERT, Kind.ROUND, Kind.BITCAST, Kind.INDEX_VALUE, Kind.INDIRECT,
                         Kind.REDUCE, Kind.PART, Kind.RANDOM, Kind.SEARCH))


class Body:
    """A nest of loops. `extents` are nodes of constants and sizes, the first `outer` of which are not reduced."""

    def __init__(self):
        self.outer, self.extents = 0, []
        self.statements = []
        self._nodes = {}
        self._scopes = [(self.statements, {})]  # the open blocks, each with its statements by key

    # -- index expressions

    def node(self, op, a=None, b=None, constant=0):
        key = (op, a if op in (IndexOp.ITERATOR, IndexOp.SIZE) else id(a), id(b), constant)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Index(op, a, b, constant)
        return found

    def constant_index(self, value):
        return self.node(IndexOp.CONSTANT, constant=value)

    def add_dimension(self, extent):
        self.extents.append(extent)

    # -- statements

    def make(self, statement):
        """Adds a statement to the innermost open block. Returns an equal one instead, if there is one that can be used here."""
        if statement.kind in _REPEATABLE:
            key = statement.key()
            for _, known in reversed(self._scopes):
                if key in known:
                    return known[key]
            self._scopes[-1][1][key] = statement
        self._scopes[-1][0].append(statement)
        return statement

    def forget_loads(self, operand):
        """Makes later loads of an operand new statements."""
        for _, known in self._scopes:
            for key in [key for key, statement in known.items() if statement.kind == Kind.LOAD and statement.operand is operand]:
                del known[key]

    @contextlib.contextmanager
    def block(self, condition):
        mask = Statement(Kind.MASK, values=(condition,))
        mask.block = []
        if len(self._scopes) > MAX_MASK_DEPTH:
            raise TooLarge(f"more than {MAX_MASK_DEPTH} masks in each other")
        self._scopes.append((mask.block, {}))
        try:
            yield mask
        finally:
            self._scopes.pop()

    @property
    def is_masked(self):
        return len(self._scopes) > 1

    def is_visible(self, value):
        """Returns whether a value was made outside of all masks that are not open."""
        return any(any(value is made for made in statements) for statements, _ in self._scopes)

    def end_block(self, mask, value, other):
        self._scopes[-1][0].append(mask)
        return self.make(Statement(Kind.UNMASK, value.dtype, values=(mask, value, other)))


class TooLarge(Exception):
    """A kernel that the language does not allow for its size."""


class Kernel:
    """A kernel of finished bodies. `operands`, `sizes` (sympy expressions by number) and `bytes` have only what is used."""

    def __init__(self, bodies, sizes):
        self._sizes = sizes
        live = [_live_statements(body) for body in bodies]
        self.bodies = [(body, _flatten(body.statements, alive)) for body, alive in zip(bodies, live)]
        self.bodies = [(body, statements) for body, statements in self.bodies if statements]
        self.operands, self.sizes = [], []
        self._number_of_operand, self._number_of_size = {}, {}
        self.roles = {}
        for _, statements in self.bodies:
            for statement in statements:
                if statement.operand is not None and statement.operand not in self._number_of_operand:
                    self._number_of_operand[statement.operand] = len(self.operands)
                    self.operands.append(statement.operand)
        self._assign_roles()
        layouts = [_Layout(body, statements, self._size) for body, statements in self.bodies]
        self._check_limits(layouts)
        writer = _Writer()
        self._encode(layouts, writer)
        self.bytes = bytes(writer.data)
        self._layouts = layouts
        if len(self.bytes) > MAX_KERNEL_BYTES:
            raise TooLarge(f"{len(self.bytes)} bytes")

    def _size(self, number):
        if number not in self._number_of_size:
            self._number_of_size[number] = len(self.sizes)
            self.sizes.append(self._sizes[number])
        return self._number_of_size[number]

    def _assign_roles(self):
        read_first, stored = set(), set()
        for _, statements in self.bodies:
            stored_here = set()
            for statement in statements:
                if statement.kind in (Kind.STORE, Kind.ATOMIC_ADD):
                    stored_here.add(statement.operand)
                if statement.kind in (Kind.LOAD, Kind.SEARCH, Kind.ATOMIC_ADD) and statement.operand not in stored:
                    read_first.add(statement.operand)
            stored |= stored_here
        for operand in self.operands:
            if operand.is_scalar:
                self.roles[operand] = Role.SCALAR
            elif operand not in stored:
                self.roles[operand] = Role.READ
            else:
                self.roles[operand] = Role.WRITTEN if operand.covered and operand not in read_first else Role.UPDATED

    def _check_limits(self, layouts):
        arguments = len(self.sizes) + sum(1 if operand.is_scalar else 2 for operand in self.operands)
        statements, indices = sum(len(each.statements) for each in layouts), sum(len(each.nodes) for each in layouts)
        for found, most, what in ((arguments, MAX_ARGUMENTS, "arguments"), (len(layouts), MAX_BODIES, "bodies"),
                                  (statements, MAX_STATEMENTS, "statements"), (indices, MAX_INDICES, "index nodes"),
                                  (max((len(body.extents) for body, _ in self.bodies), default=0), MAX_DIMENSIONS, "dimensions")):  # fmt: skip
            if found > most:
                raise TooLarge(f"{found} {what}, at most {most} are allowed")

    def outputs(self):
        return [operand for operand in self.operands if self.roles[operand] >= Role.WRITTEN]

    def inputs(self):
        return [operand for operand in self.operands if self.roles[operand] < Role.WRITTEN]

    def scalar_types(self):
        return [operand.dtype for operand in self.operands if operand.is_scalar]

    def _encode(self, layouts, writer):
        writer.number(VERSION)
        writer.number(len(self.operands))
        for operand in self.operands:
            writer.number(NUMBER_OF_DTYPE[operand.dtype])
            writer.number(self.roles[operand])
        writer.number(len(self.sizes))
        writer.number(len(layouts))
        for layout in layouts:
            body = layout.body
            writer.number(len(body.extents))
            writer.number(body.outer)
            for extent in body.extents:
                writer.number(layout.index(extent))
            writer.number(len(layout.nodes))
            for node in layout.nodes:
                writer.number(node.op)
                if node.op == IndexOp.CONSTANT:
                    writer.integer(node.constant)
                    continue
                writer.number(layout.first_of(node))
                if node.b is not None:
                    writer.number(layout.index(node.b))
            writer.number(len(layout.statements))
            for statement in layout.statements:
                writer.number(statement.kind)
                for field, value in _fields(statement):
                    layout.write(field, value, writer, self._number_of_operand)

    def text(self):
        """The kernel for people, in the form of proto/loops/text.h."""
        roles = ("scalar", "in", "out", "inout")
        lines = [f"p{i}: {roles[self.roles[operand]]} {type_name(operand.dtype)}" for i, operand in enumerate(self.operands)]
        if self.sizes:
            lines.append(f"sizes s0 to s{len(self.sizes) - 1}")
        for layout in self._layouts:
            lines += layout.text(self._number_of_operand)
        return "\n".join(lines)


def _fields(s):
    """Yields the fields of a statement in the order of the wire: VisitFields of codec.h."""
    kind = s.kind
    if kind in (Kind.SCALAR, Kind.LOAD, Kind.STORE, Kind.ATOMIC_ADD, Kind.SEARCH):
        yield "operand", s.operand
        if kind != Kind.SCALAR:
            yield "index", s.index
        if kind == Kind.SEARCH:
            yield "index", s.bound
            yield "flag", s.flag
    elif kind == Kind.CONSTANT:
        yield "type", s.type
        yield ("real", s.real) if s.type.is_floating_point else ("integer", s.number)
    elif kind == Kind.CALL:
        yield "function", s.function
        yield "type", s.type
    elif kind in (Kind.CONVERT, Kind.ROUND):
        yield "type", s.type
    elif kind == Kind.BITCAST:
        yield "type", s.source
        yield "type", s.type
    elif kind == Kind.INDEX_VALUE:
        yield "index", s.index
    elif kind == Kind.INDIRECT:
        yield "index", s.bound
        yield "flag", s.flag
    elif kind in (Kind.REDUCE, Kind.SCAN):
        yield "reduction", s.reduction
        yield "type", s.type
    elif kind == Kind.PART:
        yield "integer", s.number
    elif kind == Kind.MASK:
        yield "block", s
    elif kind == Kind.RANDOM:
        yield "integer", s.number
        yield "type", s.type
    for value in s.values:
        yield "value", value


def _live_statements(body):
    """Returns the ids of the statements that a store, an assertion or a check needs."""
    masks = {}  # of a statement: the mask that it runs under
    roots = []

    def visit(statements, mask):
        for statement in statements:
            masks[id(statement)] = mask
            if statement.kind in (Kind.STORE, Kind.ATOMIC_ADD, Kind.ASSERT) or (statement.keep and mask is None):
                roots.append(statement)
            if statement.block is not None:
                visit(statement.block, statement)

    visit(body.statements, None)
    live, seen_nodes, todo = set(), set(), roots

    def reach(node):
        if node is None or id(node) in seen_nodes:
            return
        seen_nodes.add(id(node))
        if node.op == IndexOp.INDIRECT:
            todo.append(node.a)
        elif node.op >= IndexOp.ADD:
            reach(node.a)
            reach(node.b)

    while todo:
        statement = todo.pop()
        if id(statement) in live:
            continue
        live.add(id(statement))
        todo.extend(statement.values)
        reach(statement.index)
        reach(statement.bound)
        if masks.get(id(statement)) is not None:
            todo.append(masks[id(statement)])
    return live


def _flatten(statements, live):
    flat = []
    for statement in statements:
        if id(statement) not in live:
            continue
        flat.append(statement)
        if statement.block is not None:
            inner = _flatten(statement.block, live)
            statement.number = len(inner)
            flat += inner
    return flat


class _Layout:
    """The numbers of a body's nodes and statements."""

    def __init__(self, body, statements, size):
        self.body, self.statements, self.size = body, statements, size
        self.nodes, self._index, self._value = [], {}, {}
        for number, statement in enumerate(statements):
            self._value[id(statement)] = number
        for extent in body.extents:
            self._place(extent)
        for statement in statements:
            for node in (statement.index, statement.bound):
                if node is not None:
                    self._place(node)

    def _place(self, node):
        if id(node) in self._index:
            return
        if node.op == IndexOp.INDIRECT:
            self._place(node.a.bound)
        elif node.op == IndexOp.ITERATOR:
            self._place(self.body.extents[node.a])
        elif node.op == IndexOp.SIZE:
            self.size(node.a)
        elif node.op >= IndexOp.ADD:
            self._place(node.a)
            if node.b is not None:
                self._place(node.b)
        self._index[id(node)] = len(self.nodes)
        self.nodes.append(node)

    def index(self, node):
        return self._index[id(node)]

    def value(self, statement):
        return self._value[id(statement)]

    def first_of(self, node):
        if node.op == IndexOp.ITERATOR:
            return node.a
        if node.op == IndexOp.SIZE:
            return self.size(node.a)
        return self.value(node.a) if node.op == IndexOp.INDIRECT else self.index(node.a)

    def write(self, field, value, writer, operands):
        if field == "operand":
            writer.number(operands[value])
        elif field == "index":
            writer.number(self.index(value))
        elif field == "value":
            writer.number(self.value(value))
        elif field == "type":
            writer.number(NUMBER_OF_DTYPE[value])
        elif field == "flag":
            writer.number(int(value))
        elif field == "function":
            writer.number(FUNCTIONS[value][0])
        elif field == "reduction":
            writer.number(REDUCTIONS[value][0])
        elif field == "real":
            writer.real(value)
        else:
            writer.integer(value.number if field == "block" else value)

    def _index_texts(self):
        texts = []
        signs = {IndexOp.ADD: "+", IndexOp.MUL: "*", IndexOp.FLOOR_DIV: "//", IndexOp.MOD: "%"}
        for node in self.nodes:
            if node.op == IndexOp.CONSTANT:
                texts.append(str(node.constant))
            elif node.op in (IndexOp.ITERATOR, IndexOp.SIZE, IndexOp.INDIRECT):
                texts.append(f"{'isv'[node.op - IndexOp.ITERATOR]}{self.first_of(node)}")
            elif node.op in signs:
                texts.append(f"({texts[self.index(node.a)]} {signs[node.op]} {texts[self.index(node.b)]})")
            else:
                parts = [texts[self.index(part)] for part in (node.a, node.b) if part is not None]
                texts.append(f"{node.op.name.lower()}({', '.join(parts)})")
        return texts

    def text(self, operands):
        indices = self._index_texts()
        lines = [f"{'for' if d < self.body.outer else 'reduce'} i{d} < {indices[self.index(extent)]}" for d, extent in enumerate(self.body.extents)]
        names = {Kind.INDEX_VALUE: "index", Kind.ATOMIC_ADD: "atomic_add"}
        for number, statement in enumerate(self.statements):
            line = f"  v{number} = {names.get(statement.kind, statement.kind.name.lower())}"
            for field, value in _fields(statement):
                if field == "type":
                    line += f".{type_name(value)}"
                elif field == "operand":
                    line += f" p{operands[value]}"
                elif field == "index":
                    line += f"[{indices[self.index(value)]}]"
                elif field == "value":
                    line += f" v{self.value(value)}"
                elif field == "flag":
                    line += " flag" if value else ""
                else:
                    line += f" {value.number if field == 'block' else value}"
            lines.append(line)
        return lines


class _Writer:
    def __init__(self):
        self.data = bytearray()

    def number(self, value):
        value = int(value)
        while value >= 0x80:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def integer(self, value):
        value = int(value)
        self.number(((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF)

    def real(self, value):
        self.data += struct.pack("<d", value)
