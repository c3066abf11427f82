"""Makes a program's comparisons with device names hold for xpud: `tensor.device.type == "cuda"` is true for a tensor on xpud.

The program's source is changed between parsing and compiling, in memory; line numbers stay. Only these expressions change, and only in the program
itself and in modules of its folder, not in installed packages:

    x == "cuda"    x != "cuda:0"    "cuda" in x    x in ("cuda", "xpu")    x.startswith("cuda")    x.is_cuda
"""

import ast
import builtins
import importlib.abc
import importlib.machinery
import pathlib
import sys

from .devices import NAMES, translated

EQUAL, INSIDE, FLAG = "__xpud_equal__", "__xpud_inside__", "__xpud_flag__"
FLAGS = tuple(f"is_{name}" for name in NAMES)


def _equal(left, right):
    """Returns whether the two are equal, as they are or after translation of the one that is a constant name."""
    result = left == right
    if result is False and isinstance(left, str) and isinstance(right, str):
        return translated(left) == translated(right)
    return result


def _inside(left, right):
    """Returns `left in right`, as it is or after translation of names."""
    if left in right:
        return True
    if not isinstance(left, str):
        return False
    if isinstance(right, str):
        return translated(left) in right
    return translated(left) in [translated(each) for each in right]


def _flag(value, name):
    """Returns value.is_cuda, or whether the value is on xpud. PyTorch's own code must not be told that an xpud tensor is a CUDA tensor."""
    return getattr(value, name) or getattr(getattr(value, "device", None), "type", None) == "xpud"


def _is_name(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and translated(node.value) != node.value


def _has_name(node):
    return _is_name(node) or (isinstance(node, (ast.Tuple, ast.List, ast.Set)) and any(map(_is_name, node.elts)))


class Comparisons(ast.NodeTransformer):
    """Replaces comparisons with device names by calls of the functions above."""

    def visit_Compare(self, node):  # noqa: N802  ast's name
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        operator, left, right = node.ops[0], node.left, node.comparators[0]
        if isinstance(operator, (ast.Eq, ast.NotEq)) and (_is_name(left) or _is_name(right)):
            function = EQUAL
        elif isinstance(operator, (ast.In, ast.NotIn)) and (_is_name(left) or _has_name(right)):
            function = INSIDE
        else:
            return node
        call = ast.Call(ast.Name(function, ast.Load()), [left, right], [])
        result = ast.UnaryOp(ast.Not(), call) if isinstance(operator, (ast.NotEq, ast.NotIn)) else call
        return ast.fix_missing_locations(ast.copy_location(result, node))

    def visit_Attribute(self, node):  # noqa: N802
        self.generic_visit(node)
        if node.attr not in FLAGS or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(ast.Name(FLAG, ast.Load()), [node.value, ast.Constant(node.attr)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Call(self, node):  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "startswith" and node.args and _is_name(node.args[0]):
            name = node.args[0]
            both = ast.Tuple([name, ast.Constant(translated(name.value))], ast.Load())
            node.args[0] = ast.fix_missing_locations(ast.copy_location(both, name))
        return node


def compile_program(source, path):
    """Returns the code of a program's source (bytes or str)."""
    return compile(Comparisons().visit(ast.parse(source, path)), path, "exec", dont_inherit=True)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles with the changes, and leaves no bytecode file behind."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return compile_program(self.get_data(path), path)


class _Finder(importlib.abc.MetaPathFinder):
    """Loads the source files of one folder with _Loader."""

    def __init__(self, folder):
        self._folder = folder

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        origin = pathlib.Path(spec.origin).resolve()
        if not origin.is_relative_to(self._folder) or {"site-packages", "dist-packages"} & set(origin.parts):
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install(folder):
    """Changes the program's modules, which are those below `folder`."""
    setattr(builtins, EQUAL, _equal)
    setattr(builtins, INSIDE, _inside)
    setattr(builtins, FLAG, _flag)
    folder = pathlib.Path(folder).resolve()
    if folder != pathlib.Path(folder.anchor):  # a program in / has no folder of its own
        sys.meta_path.insert(0, _Finder(folder))
