"""Evaluates the op table's formulas with NumPy, as the reference for ops that have one."""

import ast
import math
import re

import numpy as np

NAMES = {
    "neg": np.negative, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
    "lgamma": np.vectorize(lambda x: math.inf if x <= 0 and x == int(x) else math.lgamma(x), otypes=[float]), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "round": np.round, "sign": np.sign, "min": np.minimum,
    "max": np.maximum, "pow": np.power, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "floordiv": np.floor_divide, "truncdiv": lambda x, y: np.trunc(x / y).astype(np.result_type(x, y)),
    "fma": lambda x, y, z: x * y + z, "pi": np.pi, "inf": np.inf, "nan": np.nan, "where": np.where,
    # The function of which erf is the inverse, by Newton's method.
    "erfinv": np.vectorize(lambda y: _inverse(math.erf, y) if abs(y) < 1 else y * math.inf if abs(y) == 1 else math.nan, otypes=[float]),
}

# Functions that NumPy lacks. kernels/families/map_test.cc and PyTorch's database of operators test them.
SPECIAL = {
    "airy", "chebt", "chebu", "chebv", "chebw", "digamma", "erfcx", "herme", "hermh", "i0e", "i1", "i1e", "igamma", "igammac", "j0", "j1", "k0", "k0e", "k1",
    "k1e", "laguerre", "legendre", "logndtr", "ndtri", "y0", "y1", "zeta",
}  # fmt: skip


def has_reference(formula: str) -> bool:
    return SPECIAL.isdisjoint(re.findall(r"[a-z_0-9]+", formula))


def _inverse(function, y: float) -> float:
    x = 0.0
    for _ in range(60):
        x -= (function(x) - y) / (2 / math.sqrt(math.pi) * math.exp(-x * x))
    return x


class _Logic(ast.NodeTransformer):
    """and, or and not, of elements."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        left, *rest = node.values
        for right in rest:
            left = ast.Call(ast.Name(name, ast.Load()), [left, right], [])
        return left

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.Call(ast.Name("logical_not", ast.Load()), [node.operand], []) if isinstance(node.op, ast.Not) else node


def evaluate(formula: str, **values):
    """Evaluates the formula with `values` for its letters."""
    text = formula.replace("&&", " and ").replace("||", " or ").replace("!=", "<>").replace("!", " not ").replace("<>", "!=").strip()
    tree = ast.fix_missing_locations(_Logic().visit(ast.parse(text, mode="eval")))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    scope = {name: values[name] if name in values else NAMES[name] if name in NAMES else getattr(np, name) for name in names}
    with np.errstate(all="ignore"):
        return eval(compile(tree, formula, "eval"), {"__builtins__": {}}, scope)


def reduce(formula: str, values: np.ndarray, **letters):
    """Reduces one dimension, element by element."""
    init, step, _, finish = (part.strip() for part in formula.split("|") if part) if "||" not in formula else _parts(formula)
    state = [_initial(part, values.dtype) for part in _split(init)]
    with np.errstate(all="ignore"):
        for k, a in enumerate(values):
            known = dict(zip("pqrs", state), a=a, k=k, **letters)
            state = [evaluate(part, **known) for part in _split(step)]
        return evaluate(finish, **dict(zip("pqrs", state), n=len(values), **letters))


def _parts(formula: str) -> list[str]:
    return [part.replace("\0", "||").strip() for part in formula.replace("||", "\0").split("|")]


def _split(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _initial(text: str, dtype: np.dtype):
    text = text.removesuffix(":i64")
    if text in ("lowest", "highest"):
        if dtype.kind == "f":
            return -np.inf if text == "lowest" else np.inf
        limits = np.iinfo(np.int64)
        return limits.min if text == "lowest" else limits.max
    return float(text) if dtype.kind == "f" else int(text)
