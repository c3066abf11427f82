"""Inductor's loop bodies as statements of loop kernels.

A loop body is a function of index expressions that calls `ops` (torch/_inductor/ops_handler.py). `LoopOps` is an `ops` whose values are statements.
Values have compute types: 16-bit floats are computed in f32, and rounded when they are stored.
"""

import functools
import math

import sympy
import torch
from torch._inductor import ir
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import V
from torch.utils._sympy import functions as expressions
from torch.utils._sympy.symbol import SymT, symbol_is_type

from .kernel_bytes import (BITS, FUNCTIONS, INTEGERS, NORMAL, NUMBER_OF_DTYPE, REALS, UNIFORM, IndexOp, Kind, Operand, Statement,
                           compute_type)


class Unsupported(NotImplementedError):
    """What the language of loop kernels does not have. `operators`: those of the graph that a loop came from."""

    operators = ()


class NeedsOwnBody(Exception):
    """A node reads what the body writes at another position, so it must run after all of the body."""


def _is_loop_symbol(symbol):
    return symbol_is_type(symbol, (SymT.INDEX, SymT.R0_INDEX, SymT.TMP, SymT.INDIRECT, SymT.XBLOCK))


def _is_real(expression):
    """Returns whether the value of an expression of sizes and indices is no integer."""
    reals = (expressions.FloatTrueDiv, expressions.IntTrueDiv, expressions.ToFloat, expressions.FloatPow, sympy.Float)
    return (expression.is_integer is False or expression.has(*reals) or
            any(symbol_is_type(symbol, (SymT.FLOAT, SymT.UNBACKED_FLOAT)) for symbol in expression.free_symbols))  # fmt: skip


class KernelBuilder:
    """What the bodies of one kernel share: operands, sizes, and the buffers that were stored. `joins_parts`: whether the parts of a buffer (of a
    concatenation) are one operand with it."""

    def __init__(self, joins_parts=True):
        self.joins_parts = joins_parts
        self.operands = {}  # by the argument that the wrapper passes
        self.sizes, self._number_of_size = [], {}
        self.bodies = []
        self._written = {}  # operand -> elements that are written, by the name of the part

    def buffer(self, name):
        """Returns the operand of a buffer, and the position of the buffer's first element in it."""
        name = V.graph.scheduler.mutation_real_name.get(name, name)
        offset = sympy.S.Zero
        while self.joins_parts and (part := _part_of(name)) is not None:
            name, offset = part[0], offset + part[1]
        if name not in self.operands:
            dtype = V.graph.get_dtype(name)
            if dtype not in NUMBER_OF_DTYPE:
                raise Unsupported(f"elements of {dtype}")
            self.operands[name] = Operand(name, dtype, is_cpu_tensor=_is_cpu_scalar(name))
        return self.operands[name], offset

    def note_written(self, operand, name, points):
        """Notes that `points` different elements of a part are written. Parts do not overlap."""
        written = self._written.setdefault(operand, {})
        written[name] = points
        buffer = V.graph.try_get_buffer(operand.argument)
        if buffer is not None:
            layout = buffer.get_layout()
            operand.covered = V.graph.sizevars.simplify(layout.storage_size() - sum(written.values())) == 0 and layout.offset == 0

    def number(self, expression, dtype):
        """Returns the operand for a number that the wrapper computes."""
        argument = V.graph.wrapper_code.codegen_python_sizevar(expression)
        key = (argument, dtype)
        if key not in self.operands:
            self.operands[key] = Operand(argument, dtype, is_scalar=True)
        return self.operands[key]

    def size(self, expression):
        if expression not in self._number_of_size:
            self._number_of_size[expression] = len(self.sizes)
            self.sizes.append(expression)
        return self._number_of_size[expression]


def _part_of(name):
    """Returns the buffer that a buffer is a part of, and the position in it; or None."""
    buffer = V.graph.name_to_buffer.get(name)
    if buffer is None or not isinstance(buffer.get_output_spec(), ir.NonOwningLayout):
        return None
    view = buffer.get_layout().view
    whole = view.data.data if isinstance(view, ir.ReinterpretView) and isinstance(view.data, ir.StorageBox) else None
    return (whole.get_name(), view.get_layout().offset) if isinstance(whole, ir.Buffer) else None


def _is_cpu_scalar(name):
    buffer = V.graph.try_get_buffer(name)
    if name in V.graph.constants:
        constant = V.graph.constants[name]
        device, size = constant.device, tuple(constant.shape)
    elif buffer is not None:
        device, size = buffer.get_device(), tuple(buffer.get_size())
    else:
        return False
    if device is None or device.type == "xpud":
        return False
    if any(V.graph.sizevars.simplify(each) != 1 for each in size):
        raise Unsupported(f"a tensor on {device} in a kernel of xpud")
    return True


class IndexWriter:
    """Writes sympy expressions as index nodes of a body. `iterators`: node by symbol."""

    def __init__(self, builder, body):
        self.builder, self.body, self.symbols, self._known = builder, body, {}, {}

    def write(self, expression):
        if isinstance(expression, int):
            return self.body.constant_index(expression)
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = self._write(expression)
        return found

    def is_loop_invariant(self, expression):
        return not any(symbol in self.symbols or _is_loop_symbol(symbol) for symbol in expression.free_symbols)

    def _argument(self, expression):
        """A size that the wrapper computes: the expression has operations that index expressions lack."""
        if not self.is_loop_invariant(expression):
            raise Unsupported(f"index expression {expression}")
        return self.body.node(IndexOp.SIZE, self.builder.size(expression))

    def _fold(self, op, parts):
        node = self.write(parts[0])
        for part in parts[1:]:
            node = self.body.node(op, node, self.write(part))
        return node

    def _divide(self, op, a, divisor):
        divisor = sympy.sympify(divisor)
        if not self.is_loop_invariant(divisor) or (divisor.is_number and divisor < 1):
            return None
        return self.body.node(op, a, self.write(divisor))

    def _write(self, e):
        body = self.body
        if e.is_Integer:
            if not -(1 << 63) <= int(e) < 1 << 63:
                raise Unsupported(f"index {e}")
            return body.constant_index(int(e))
        if e.is_Symbol:
            if e in self.symbols:
                return self.symbols[e]
            if _is_loop_symbol(e):
                raise Unsupported(f"unknown index {e}")
            return body.node(IndexOp.SIZE, self.builder.size(e))
        if isinstance(e, expressions.Identity):
            return self.write(e.args[0])
        if e.is_Add:
            return self._fold(IndexOp.ADD, _stable(e.args))
        if e.is_Mul and all(part.is_integer is not False for part in e.args):
            return self._fold(IndexOp.MUL, _stable(e.args))
        if e.is_Pow and e.exp.is_Integer and 0 < int(e.exp) <= 8:
            return self._fold(IndexOp.MUL, [e.base] * int(e.exp))
        if isinstance(e, (expressions.FloorDiv, expressions.CleanDiv)):
            made = self._divide(IndexOp.FLOOR_DIV, self.write(e.args[0]), e.args[1])
        elif isinstance(e, expressions.ModularIndexing):
            made = self.write(e.args[0])
            if e.args[1] != 1:
                made = self._divide(IndexOp.FLOOR_DIV, made, e.args[1])
            made = made and self._divide(IndexOp.MOD, made, e.args[2])
        elif isinstance(e, (expressions.Mod, expressions.PythonMod)):
            made = self._divide(IndexOp.MOD, self.write(e.args[0]), e.args[1])
        elif isinstance(e, (expressions.Min, sympy.Min)):
            made = self._fold(IndexOp.MIN, _stable(e.args))
        elif isinstance(e, (expressions.Max, sympy.Max)):
            made = self._fold(IndexOp.MAX, _stable(e.args))
        elif isinstance(e, sympy.Abs):
            made = body.node(IndexOp.ABS, self.write(e.args[0]))
        else:
            made = None
        return made if made is not None else self._argument(e)


def _stable(parts):
    """Orders the terms of a sum or product by their text, so that equal kernels have equal bytes in all processes."""
    return sorted(parts, key=lambda part: (part.is_number, str(part)))


_SAME_NAME = ("exp exp2 expm1 sqrt cos sin lgamma erf cosh sinh acos acosh asin asinh atan atanh erfc erfinv log10 log2 rsqrt log1p tan tanh "
              "sigmoid log digamma erfcx ndtri i0 i0e i1 i1e").split()  # fmt: skip
_FLOATING_1 = {name: name for name in _SAME_NAME} | {
    "airy_ai": "airy", "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1", "log_ndtr": "logndtr", "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1", "modified_bessel_k0": "k0", "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e"}  # fmt: skip
_FLOATING_2 = {
    "atan2": "atan2", "copysign": "copysign", "hypot": "hypot", "nextafter": "nextafter", "igamma": "igamma", "igammac": "igammac",
    "gammainc": "igamma", "gammaincc": "igammac", "zeta": "zeta", "truediv": "div", "div_rn": "div", "int_truediv": "div", "chebyshev_polynomial_t": "chebt",
    "chebyshev_polynomial_u": "chebu", "chebyshev_polynomial_v": "chebv", "chebyshev_polynomial_w": "chebw", "legendre_polynomial_p": "legendre",
    "hermite_polynomial_h": "hermh", "hermite_polynomial_he": "herme", "laguerre_polynomial_l": "laguerre"}  # fmt: skip
_NUMERIC_2 = {"sub": "sub", "fmod": "fmod", "mod": "fmod", "remainder": "remainder", "floordiv": "floordiv", "truncdiv": "truncdiv", "pow": "pow"}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_BOOLS = {"add": "logical_or", "mul": "logical_and", "mul_rn": "logical_and", "minimum": "logical_and", "maximum": "logical_or"}
_NUMERIC_OR_BOOL = {"add": "add", "mul": "mul", "mul_rn": "mul", "minimum": "min", "maximum": "max"}
_BITS = {"bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "and_": "bitwise_and", "or_": "bitwise_or",
         "xor": "bitwise_xor"}  # fmt: skip
_SHIFTS = {"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "lshift": "shift_left", "rshift": "shift_right"}
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round"}
_TO_INTEGER = {"floor_to_int": "floor", "ceil_to_int": "ceil", "trunc_to_int": "trunc", "round_to_int": "round"}
_SHIFTED = {f"shifted_chebyshev_polynomial_{letter}": f"cheb{letter}" for letter in "tuvw"}

_REDUCTION_NAMES = {"sum": "sum", "prod": "product", "min": "min", "max": "max", "xor_sum": "xor", "any": "any"}


class LoopOps(DefaultHandler):
    """The `ops` of one body. `stores`: the buffers whose stores are written; others live only inside the kernel."""

    def __init__(self, builder, body, ranges, stores):
        self.builder, self.body, self.ranges, self._stores = builder, body, dict(ranges), stores
        self.indices = IndexWriter(builder, body)
        self.node = None  # the scheduler's node whose body runs
        self.points = 1  # of it
        self._values = {}  # name -> (index, value) of the buffers that this body stored
        self._accesses = {}  # operand -> indices of its loads and stores in this body
        self._stores_of = {}  # operand -> index by part
        self._indirects = 0

    # -- values

    def constant(self, value, dtype):
        dtype = compute_type(dtype)
        if dtype not in NUMBER_OF_DTYPE:
            raise Unsupported(f"a constant of {dtype}")
        if isinstance(value, sympy.Basic):
            if not value.is_number:
                return self.index_expr(value, dtype)
            value = float(value) if dtype.is_floating_point else int(value)
        if dtype.is_floating_point:
            return self.body.make(Statement(Kind.CONSTANT, dtype, type=dtype, real=float(value)))
        if dtype == torch.bool:
            value = int(bool(value))
        else:
            bits = torch.iinfo(dtype).bits
            value = int(value) & (1 << bits) - 1
            if dtype.is_signed and value >> (bits - 1):
                value -= 1 << bits
        return self.body.make(Statement(Kind.CONSTANT, dtype, type=dtype, number=value))

    def _value(self, x, like=None):
        if isinstance(x, Statement):
            return x
        if isinstance(x, bool):
            return self.constant(x, torch.bool)
        if like is None:
            like = torch.int64 if isinstance(x, int) else torch.float32
        return self.constant(x, like if like.is_floating_point or isinstance(x, int) else torch.float32)

    def _cast(self, x, dtype):
        x = self._value(x, dtype)
        if x.dtype == dtype:
            return x
        if dtype not in NUMBER_OF_DTYPE:
            raise Unsupported(f"a value of {dtype}")
        if x.kind == Kind.CONSTANT and (x.dtype.is_floating_point == dtype.is_floating_point or dtype.is_floating_point):
            return self.constant(x.real if x.dtype.is_floating_point else x.number, dtype)
        return self.body.make(Statement(Kind.CONVERT, dtype, type=dtype, values=(x,)))

    def _promoted(self, *values):
        known = [value.dtype for value in values if isinstance(value, Statement)]
        like = functools.reduce(torch.promote_types, known) if known else None
        values = [self._value(value, like) for value in values]
        dtype = functools.reduce(torch.promote_types, [value.dtype for value in values])
        return dtype, [self._cast(value, dtype) for value in values]

    def _call(self, name, *values, dtype=None):
        """Calls a function on values of one type."""
        kind = FUNCTIONS[name][2]
        dtype = dtype or values[-1].dtype
        gives = torch.bool if kind in ("comparison", "predicate") else dtype
        return self.body.make(Statement(Kind.CALL, gives, type=dtype, function=name, values=values))

    def _float(self, *values):
        dtype, values = self._promoted(*values)
        if dtype not in REALS:
            dtype = compute_type(torch.get_default_dtype())
            values = [self._cast(value, dtype) for value in values]
        return values

    def _bool(self, x):
        return self._cast(x, torch.bool)

    def _default(self, name, args, kwargs):
        if kwargs:
            raise Unsupported(f"{name} with {', '.join(kwargs)}")
        if name in _FLOATING_1:
            return self._call(_FLOATING_1[name], *self._float(*args))
        if name in _FLOATING_2:
            return self._call(_FLOATING_2[name], *self._float(*args))
        if name in _NUMERIC_OR_BOOL:
            dtype, values = self._promoted(*args)
            return self._call((_OF_BOOLS if dtype == torch.bool else _NUMERIC_OR_BOOL)[name], *values)
        if name in _NUMERIC_2:
            dtype, values = self._promoted(*args)
            if dtype == torch.bool:
                values = [self._cast(value, torch.int64) for value in values]
            return self._call(_NUMERIC_2[name], *values)
        if name in _COMPARISONS:
            return self._call(name, *self._promoted(*args)[1])
        if name in _BITS:
            return self._call(_BITS[name], *self._promoted(*args)[1])
        if name in _SHIFTS:
            return self._call(_SHIFTS[name], *self._promoted(*args)[1])
        if name in _ROUNDINGS:
            (x,) = (self._value(arg) for arg in args)
            return self._call(_ROUNDINGS[name], x) if x.dtype in REALS else x
        if name in _SHIFTED:
            x, n = self._float(*args)
            two, one = self.constant(2.0, x.dtype), self.constant(1.0, x.dtype)
            return self._call(_SHIFTED[name], self._call("sub", self._call("mul", two, x), one), n)
        raise Unsupported(f"the operation {name}")

    # -- pointwise operations that are not one function

    def identity(self, x):
        return x

    def output(self, *args):
        return None

    def neg(self, x):
        x = self._value(x)
        return self._call("neg", x)

    def abs(self, x):
        x = self._value(x)
        return x if x.dtype == torch.bool else self._call("abs", x)

    def sign(self, x):
        x = self._value(x)
        return x if x.dtype == torch.bool else self._call("sign", x)

    def square(self, x):
        return self.mul(x, x)

    def relu(self, x):
        x = self._value(x)
        return x if x.dtype == torch.bool else self._call("max", x, self.constant(0, x.dtype))

    def reciprocal(self, x):
        (x,) = self._float(x)
        return self._call("div", self.constant(1.0, x.dtype), x)

    def signbit(self, x):
        x = self._value(x)
        if x.dtype in REALS:
            x = self._call("copysign", self.constant(1.0, x.dtype), x)
        return self._call("lt", x, self.constant(0, x.dtype))

    def isnan(self, x):
        return self._predicate("isnan", x)

    def isinf(self, x):
        return self._predicate("isinf", x)

    def _predicate(self, name, x):
        x = self._value(x)
        return self._call(name, x) if x.dtype in REALS else self.constant(False, torch.bool)

    def fma(self, x, y, z):
        return self._call("fma", *self._float(x, y, z))

    def ldexp(self, x, n):
        (x,) = self._float(x)
        return self._call("mul", x, self._call("exp2", self._cast(n, x.dtype)))

    def frexp(self, x):
        (x,) = self._float(x)
        return self._call("mantissa", x), self._cast(self._call("exponent", x), torch.int32)

    def ndtr(self, x):
        (x,) = self._float(x)
        half = self.constant(0.5, x.dtype)
        return self._call("mul", half, self._call("erfc", self._call("mul", x, self.constant(-math.sqrt(0.5), x.dtype))))

    def logical_not(self, x):
        return self._call("logical_not", self._bool(x))

    def logical_and(self, x, y):
        return self._call("logical_and", self._bool(x), self._bool(y))

    def logical_or(self, x, y):
        return self._call("logical_or", self._bool(x), self._bool(y))

    def logical_xor(self, x, y):
        return self._call("ne", self._bool(x), self._bool(y))

    def bitwise_not(self, x):
        return self._call("bitwise_not", self._value(x))

    def where(self, condition, x, y):
        _, (x, y) = self._promoted(x, y)
        return x if x is y else self._call("where", self._bool(condition), x, y)

    def round_to_int(self, x, dtype):
        return self._cast(self.round(x), dtype)

    def floor_to_int(self, x, dtype):
        return self._cast(self.floor(x), dtype)

    def ceil_to_int(self, x, dtype):
        return self._cast(self.ceil(x), dtype)

    def trunc_to_int(self, x, dtype):
        return self._cast(self.trunc(x), dtype)

    def to_dtype(self, x, dtype, src_dtype=None, use_compute_types=True):
        x = self._cast(x, compute_type(dtype))
        if use_compute_types or compute_type(dtype) == dtype:
            return x
        return self.body.make(Statement(Kind.ROUND, torch.float32, type=dtype, values=(x,)))

    def to_dtype_bitcast(self, x, dtype, src_dtype):
        for each in (dtype, src_dtype):
            if each not in NUMBER_OF_DTYPE or each == torch.bool:
                raise Unsupported(f"the bits of {each}")
        x = self._cast(x, compute_type(src_dtype))
        return self.body.make(Statement(Kind.BITCAST, compute_type(dtype), source=src_dtype, type=dtype, values=(x,)))

    # -- indices

    def _simplify(self, index):
        return V.graph.sizevars.simplify_with_ranges(index, self.ranges) if isinstance(index, sympy.Expr) else sympy.Integer(index)

    def index_expr(self, expr, dtype):
        dtype = compute_type(dtype)
        expr = self._simplify(expr)
        if expr.is_number:
            return self.constant(expr, dtype)
        if _is_real(expr):
            if not self.indices.is_loop_invariant(expr):
                raise Unsupported(f"the value {expr}")
            operand = self.builder.number(expr, torch.float64)
            return self._cast(self.body.make(Statement(Kind.SCALAR, torch.float64, operand=operand)), dtype)
        value = self.body.make(Statement(Kind.INDEX_VALUE, torch.int64, index=self.indices.write(expr)))
        return self._cast(value, dtype)

    value_expr = index_expr

    def indirect_indexing(self, index_var, size, check=True, wrap_neg=True):
        index_var = self._value(index_var, torch.int64)
        if index_var.dtype not in INTEGERS:
            index_var = self._cast(index_var, torch.int64)
        bound = self.indices.write(self._simplify(size))
        statement = self.body.make(Statement(Kind.INDIRECT, bound=bound, flag=bool(wrap_neg), values=(index_var,), keep=bool(check)))
        symbol = sympy.Symbol(f"tmp_indirect{self._indirects}", integer=True, nonnegative=True)
        self._indirects += 1
        self.indices.symbols[symbol] = self.body.node(IndexOp.INDIRECT, statement)
        self.ranges[symbol] = sympy.sympify(size)
        return symbol

    def check_bounds(self, index, size, lower, upper):
        if not lower and not upper:
            return
        value = self.index_expr(index, torch.int64)
        self.body.make(Statement(Kind.INDIRECT, bound=self.indices.write(self._simplify(size)), values=(value,), keep=True))

    # -- memory

    def load(self, name, index):
        index = self._simplify(index)
        if name in self._values:
            stored_at, value = self._values[name]
            if V.graph.sizevars.simplify(stored_at - index) == 0:
                return value
            raise NeedsOwnBody(name)
        operand, offset = self.builder.buffer(name)
        if operand.is_scalar:
            return self.body.make(Statement(Kind.SCALAR, compute_type(operand.dtype), operand=operand))
        node = self.indices.write(self._simplify(index + offset))
        self._note_access(operand, "load", node)
        return self.body.make(Statement(Kind.LOAD, compute_type(operand.dtype), operand=operand, index=node))

    def _note_access(self, operand, how, node):
        """Points run in any order, so what a body writes it may read at the same index only."""
        known = self._accesses.setdefault(operand, {"load": set(), "store": set(), "add": set()})
        known[how].add(node)
        if known["load"] and (known["add"] or known["store"]) and (known["add"] or len(known["load"] | known["store"]) > 1):
            raise NeedsOwnBody(operand.argument)
        if known["add"] and known["store"]:
            raise NeedsOwnBody(operand.argument)

    def _note_store(self, operand, name, node):
        """Two stores at one element would leave either value. Parts of a buffer do not overlap."""
        part = V.graph.scheduler.mutation_real_name.get(name, name)
        known = self._stores_of.setdefault(operand, {})
        whole = operand.argument
        if known.setdefault(part, node) is not node or (len(known) > 1 and whole in known):
            raise NeedsOwnBody(whole)

    def store(self, name, index, value, mode=None):
        if value is None:  # of an assertion
            return
        index = self._simplify(index)
        buffer_type = V.graph.get_dtype(name)
        value = self._cast(value, compute_type(buffer_type))
        if mode is None:
            self._values[name] = (index, value)
            if name in V.graph.name_to_buffer and self.node is not None:
                for other in self.node.get_output(name).get_mutations():
                    self._values[other] = (index, value)
        elif mode != "atomic_add":
            raise Unsupported(f"a store with mode {mode}")
        if name not in self._stores:
            return
        operand, offset = self.builder.buffer(name)
        node = self.indices.write(self._simplify(index + offset))
        kind = Kind.STORE if mode is None else Kind.ATOMIC_ADD
        if kind == Kind.ATOMIC_ADD and operand.dtype == torch.bool:
            raise Unsupported("a sum of bool in memory")
        self._note_access(operand, "store" if mode is None else "add", node)
        if mode is None:
            self._note_store(operand, name, node)
        self.body.make(Statement(kind, operand=operand, index=node, values=(value,)))
        if mode is None and not any(symbol in self.ranges and str(symbol).startswith("tmp_indirect") for symbol in index.free_symbols):
            self.builder.note_written(operand, name, self.points)

    def store_reduction(self, name, index, value):
        self.store(name, index, value)

    def device_assert_async(self, cond, msg):
        if self.body.is_masked:
            raise Unsupported("an assertion under a mask")
        self.body.make(Statement(Kind.ASSERT, values=(self._bool(cond),)))

    def masked(self, mask, body, other):
        mask = self._bool(mask)
        with self.body.block(mask) as block:
            value = self._value(body())
        other = self._cast(other, value.dtype) if not isinstance(other, Statement) else other
        if other.dtype != value.dtype:
            raise Unsupported("values of several types at the end of a mask")
        if self.body.is_visible(value):  # it was made outside, so nothing needs to run under the mask
            return self.where(mask, value, other)
        return self.body.end_block(block, value, other)

    # -- reductions and scans

    def _parts(self, statement, types):
        return (statement, *(self.body.make(Statement(Kind.PART, dtype, number=i, values=(statement,))) for i, dtype in enumerate(types, 1)))

    def _reduce(self, name, dtype, *values, kind=Kind.REDUCE):
        return self.body.make(Statement(kind, dtype, reduction=name, type=dtype, values=values))

    def _position(self):
        """The position in the reduced dimensions, row-major."""
        body = self.body
        node = None
        for dimension in range(body.outer, len(body.extents)):
            iterator = body.node(IndexOp.ITERATOR, dimension)
            node = iterator if node is None else body.node(IndexOp.ADD, body.node(IndexOp.MUL, node, body.extents[dimension]), iterator)
        return self.body.make(Statement(Kind.INDEX_VALUE, torch.int64, index=node))

    def reduction(self, dtype, src_dtype, reduction_type, value):
        if self.body.is_masked:
            raise Unsupported("a reduction under a mask")
        computed = compute_type(dtype)
        if reduction_type.startswith(("argmax", "argmin")):
            value, position = value if isinstance(value, (tuple, list)) else (value, self._position())
            value = self._value(value)
            if value.dtype == torch.bool:
                value = self._cast(value, torch.uint8)
            made = self._parts(self._reduce(reduction_type[:6], value.dtype, value, self._cast(position, torch.int64)), (torch.int64,))
            what = reduction_type[6:]
            return made if what == "_with_value" else made[0] if what == "_value" else self._cast(made[1], computed)
        if reduction_type == "welford_reduce":
            (value,) = self._float(value)
            return self._parts(self._reduce("welford", value.dtype, value), (value.dtype,) * 2)
        if reduction_type == "welford_combine":
            values = self._float(*value)
            return self._parts(self._reduce("welford_combine", values[0].dtype, *values), (values[0].dtype,) * 2)
        if reduction_type == "online_softmax_reduce":
            (value,) = self._float(value)
            return self._parts(self._reduce("online_softmax", value.dtype, value), (value.dtype,))
        if reduction_type not in _REDUCTION_NAMES:
            raise Unsupported(f"the reduction {reduction_type}")
        name = _REDUCTION_NAMES[reduction_type]
        if name == "any":
            return self._cast(self._reduce("any", torch.bool, self._bool(value)), computed)
        source = compute_type(src_dtype)
        if source == torch.bool and name in ("min", "max"):
            value = self._bool(value)
            if name == "max":
                return self._reduce("any", torch.bool, value)
            return self.logical_not(self._reduce("any", torch.bool, self.logical_not(value)))
        accumulated = computed if name in ("sum", "product", "xor") else source
        if accumulated == torch.bool and name in ("sum", "product"):
            value, accumulated = self._bool(value), torch.int64
        return self._cast(self._reduce(name, accumulated, self._cast(value, accumulated)), computed)

    def scan(self, dtypes, combine_fn, values):
        if self.body.is_masked:
            raise Unsupported("a scan under a mask")
        name = scan_name(combine_fn, len(values))
        if name is None:
            raise Unsupported("a scan of another function than sum, product, minimum and maximum")
        dtype = compute_type(dtypes[0])
        return (self._reduce(name, dtype, self._cast(values[0], dtype), kind=Kind.SCAN),)

    # -- random numbers, searches

    def load_seed(self, name, offset):
        return self._cast(self.load(name, sympy.sympify(offset)), torch.int64)

    def _random(self, which, seed, offset, dtype):
        values = (self._cast(seed, torch.int64), self._cast(offset, torch.int64))
        return self.body.make(Statement(Kind.RANDOM, dtype, type=dtype, number=which, values=values))

    def rand(self, seed, offset):
        return self._random(UNIFORM, seed, offset, torch.float32)

    def randn(self, seed, offset):
        return self._random(NORMAL, seed, offset, torch.float32)

    def randint64(self, seed, offset, low, high):
        bits = self._random(BITS, seed, offset, torch.int64)
        low, high = self._cast(low, torch.int64), self._cast(high, torch.int64)
        return self._call("add", self._call("remainder", bits, self._call("sub", high, low)), low)

    def bucketize(self, values, boundaries, boundary_indices, indexing_dtype, right, sorter=None, sorter_indices=None):
        name, length, elements, stride = boundaries
        if sorter is not None or V.graph.sizevars.simplify(stride) != 1:
            raise Unsupported("a search in boundaries that are not in their order")
        operand, first = self.builder.buffer(name)
        if name in self._values or operand.is_scalar or first != 0:
            raise Unsupported("a search in a part of a buffer, or in one that the kernel writes")
        start = self.indirect_indexing(boundary_indices, elements + 1, check=False, wrap_neg=False)
        value = self._cast(values, compute_type(operand.dtype))
        found = Statement(Kind.SEARCH, torch.int64, operand=operand, index=self.indices.write(self._simplify(start)), flag=bool(right),
                          bound=self.indices.write(self._simplify(length)), values=(value,))  # fmt: skip
        return self._cast(self.body.make(found), indexing_dtype)


class _Recorder(DefaultHandler):
    """Writes the calls of a combine function as text."""

    def _default(self, name, args, kwargs):
        return f"{name}({', '.join(map(str, (*args, *kwargs.values())))})"


_SCANS = {"add(a, b)": "sum", "mul(a, b)": "product", "minimum(a, b)": "min", "maximum(a, b)": "max"}


def scan_name(combine_fn, width):
    """Returns the reduction that a scan's function is, or None."""
    if width != 1:
        return None
    with V.set_ops_handler(_Recorder()):
        try:
            (made,) = combine_fn(("a",), ("b",))
        except (TypeError, AttributeError, ValueError):
            return None
    return _SCANS.get(str(made))

