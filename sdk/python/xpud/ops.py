"""Every op of the table under ATen's name: xpud.ops.add, xpud.ops.native_layer_norm, xpud.ops.mm. Ops without a function of their own elsewhere take
their operands as the table lists them (proto/ops/op_table.h)."""

from __future__ import annotations

from . import _families, _table

_table.describe()
for _row in _table.ROWS:
    _function = _row["op"] if _row["op"] is not None else _families.function_of(_row)
    for _name in _row["names"]:
        globals()[_name] = _function
__all__ = sorted(_table.BY_NAME)
