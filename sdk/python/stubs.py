"""Writes type hints for names that come from the op table: stubs.py FOLDER, where FOLDER is the built package xpud. Needs no numpy.

ops.pyi has every op, _xpud.pyi the operators and the reductions that are methods of arrays, __init__.pyi the package's names.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
import types

HEAD = '"""Made from the op table by sdk/python/stubs.py."""\n\nimport builtins\nimport typing\n\n'
NUMBER = "builtins.bool, builtins.int, builtins.float"  # the package has a type called bool
OPERATORS = "add sub mul truediv floordiv mod pow and or xor"
COMPARISONS = "lt le eq ne gt ge"


def load(package: pathlib.Path) -> types.ModuleType:
    """Returns xpud._table without importing the rest of the package."""
    parent = types.ModuleType("xpud")
    parent.__path__ = [str(package)]
    sys.modules["xpud"] = parent
    extension = importlib.import_module("xpud._xpud")
    extension.register_types(tuple(types.SimpleNamespace(name=name) for name, _, _ in extension.types()))
    return importlib.import_module("xpud._table")


def hinted(table: types.ModuleType, row: dict, array: str = "Array") -> str:
    """Returns the parameters of an elementwise op or a reduction, with types."""
    if row["family"] == "reduce":
        last = ", attribute: typing.Optional[float] = None" if "attribute" in table.signature(row)[0] else ""
        return (f"a: {array}, /, axis: typing.Union[int, typing.Tuple[int, ...], None] = None, *, keepdims: builtins.bool = False, "
                f"dtype: typing.Optional[DType] = None{last}")
    words = table.signature(row)[0].split(", /")[0].split(", ")
    hints = [f"{letter}: typing.Union[{array}, {NUMBER}]" + (f" = {default}" if default else "")
             for letter, _, default in (word.partition("=") for word in words)]
    compute = ", compute: typing.Optional[DType] = None" if row["types"] == "any" else ""
    return f"{', '.join(hints)}, /, *, out: typing.Optional[{array}] = None{compute}"


def define(table: types.ModuleType, name: str, row: dict) -> str:
    if row["op"] is None:
        return f"def {name}(*operands: typing.Optional[Array], **options: typing.Any) -> typing.Any: ...\n"
    return f"def {name}({hinted(table, row)}) -> Array: ...\n"


def extension_text(table: types.ModuleType, reductions: dict[str, dict]) -> str:
    array = "_array.Array"
    other = f"other: typing.Union[{array}, {NUMBER}]"
    lines = [HEAD, "from . import _array, _session\nfrom ._types import DType\n\n"]
    lines += ["class OutOfMemoryError(builtins.MemoryError): ...\nclass ConnectionError(builtins.ConnectionError): ...\n"]
    lines += ["class Session:\n    def __init__(self, *arguments: typing.Any) -> None: ...\n    def __getattr__(self, name: str) -> typing.Any: ...\n"]
    lines += ["class Device:\n    index: builtins.int\n    def __getattr__(self, name: str) -> typing.Any: ...\n"]
    lines += ["def __getattr__(name: str) -> typing.Any: ...\n\nclass Array:\n"]
    for name, kind in {"shape": "typing.Tuple[int, ...]", "strides": "typing.Tuple[int, ...]", "dtype": "DType", "device": "_session.Device", "ndim": "int",
                       "size": "int", "itemsize": "int", "nbytes": "int", "is_contiguous": "builtins.bool"}.items():
        lines += [f"    @property\n    def {name}(self) -> {kind}: ...\n"]
    for name in OPERATORS.split():
        lines += [f"    def __{prefix}{name}__(self, {other}) -> {array}: ...\n" for prefix in ("", "r", "i")]
    lines += [f"    def __{name}__(self, {other}) -> {array}: ...  # type: ignore[override]\n" for name in COMPARISONS.split()]
    lines += [f"    def __{name}__(self) -> {array}: ...\n" for name in ("neg", "pos", "abs", "invert")]
    lines += ["    def __len__(self) -> int: ...\n    def __getattr__(self, name: str) -> typing.Any: ...\n"]
    lines += [f"    def {name}({hinted(table, row, array).replace(f'a: {array}, /', 'self')}) -> {array}: ...\n" for name, row in reductions.items()]
    return "".join(lines)


def package_text(table: types.ModuleType, source: str) -> tuple[str, dict[str, dict]]:
    """Returns the package's names: those that its source imports, the types, and the ops of the table."""
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom) and node.level == 1]
    named = {alias.name: node.module for node in imports for alias in node.names}
    public = {name: module for name, module in named.items() if not name.startswith("_")}
    lines = [HEAD]
    lines += [f"from .{module or ''} import {name} as {name}\n" for name, module in public.items()]
    kinds = [name for name, _, _ in sys.modules["xpud._xpud"].types()]
    lines += [f"{name}: DType\n" for name in kinds] + ["__version__: str\n"]
    ops = table.exported({*public, *kinds})
    lines += [define(table, name, row) for name, row in sorted(ops.items())]
    return "".join(lines), {name: row for name, row in ops.items() if row["family"] == "reduce"}


def main() -> None:
    package = pathlib.Path(sys.argv[1])
    table = load(package)
    text, reductions = package_text(table, (package / "__init__.py").read_text())
    (package / "__init__.pyi").write_text(text)
    (package / "_xpud.pyi").write_text(extension_text(table, reductions))
    ops = "".join(define(table, name, row) for name, row in sorted(table.BY_NAME.items()) if name.isidentifier())
    (package / "ops.pyi").write_text(HEAD + "from ._array import Array\nfrom ._types import DType\n\n" + ops)


if __name__ == "__main__":
    main()
