"""The op table as functions: all rows that libxpud was built with, of any family. This file adds only what the table lacks; an op of a known family
needs nothing here, and appears under its name."""

from __future__ import annotations

import re
import typing

from . import _xpud

ROWS: list[dict] = _xpud.rows()
BY_NAME: dict[str, dict] = {name: row for row in ROWS for name in row["names"]}

# Defaults of the last inputs of elementwise ops, as in ATen.
DEFAULTS = {
    "add": (1,), "sub": (1,), "rsub": (1,), "addcmul": (1,), "addcdiv": (1,), "leaky_relu": (0.01,), "elu": (1.0, 1.0, 1.0), "softplus": (1.0, 20.0),
}
# The array API standard's names, in addition to ATen's.
STANDARD = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "sgn": "sign", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "bitwise_not": "bitwise_invert", "amax": "max", "amin": "min",
}
_NOTES = {
    "promote": "The result has the inputs' common type.",
    "float": "Integers and bool give float32; other results have the inputs' common type.",
    "bool": "The result is bool.",
    "same": "The result has the type of the first array.",
    "any": "The type is that of `out`, which is required.",
    "sum": "Integers and bool give int64, unless dtype= is given.",
    "index": "The result is int64.",
}


def _types_text(row: dict) -> str:
    return ", ".join(each.name for each in row["dtypes"])


def signature(row: dict) -> tuple[str, str]:
    """Returns the parameters of an elementwise op or a reduction, and those before the / alone, with the table's letters."""
    if row["family"] == "reduce":
        return "a, /, axis=None, *, keepdims=False, dtype=None" + (", attribute=None" if "b" in _letters(row) else ""), "a"
    defaults = DEFAULTS.get(row["names"][0], ())
    letters = "abcdefgh"[:row["inputs"]]
    words = [letter if (back := row["inputs"] - i) > len(defaults) else f"{letter}={defaults[-back]}" for i, letter in enumerate(letters)]
    return ", ".join(words) + ", /, *, out=None", ", ".join(letters)


def _letters(row: dict) -> set[str]:
    return set(re.findall(r"\b[a-h]\b", row["formula"]))


def _document(row: dict) -> str:
    note = _NOTES.get(row["types"], "")
    if row["family"] == "map":
        body = f"{row['formula']}, for each element. Arrays broadcast as in NumPy; numbers take the arrays' type.\n{note}"
        errors = "Raises TypeError for other types, and ValueError for shapes that do not broadcast or arrays of different devices."
    else:
        body = f"{row['names'][0]} over `axis`: a number, a tuple of numbers, or None for all axes; keepdims=True keeps them with size 1.\n{note}\n\n" \
               f"Formula: {row['formula']} (initial values of p to s | with an element a | of two parts merged, the second with p2 to s2 | result)."
        errors = "Raises TypeError for other types, and IndexError for an axis that there is not."
    return f"{body}\n\nTypes: {_types_text(row)}.\n{errors}"


def exported(taken: typing.Container[str]) -> dict[str, dict]:
    """Returns the package's functions for elementwise ops and reductions, by ATen's names and the standard's, except those in `taken`."""
    names = {}
    for row in ROWS:
        if row["op"] is None or row["types"] == "any":
            continue
        for name in row["names"]:
            for each in (name, STANDARD.get(name, name)):
                if not each.startswith("_") and each not in taken:
                    names.setdefault(each, row)
    return names


def describe() -> None:
    for row in ROWS:
        if row["op"] is not None:
            row["op"]._describe(_document(row), DEFAULTS.get(row["names"][0], ()), f"({signature(row)[0]})")
