"""Operators that order and scatter, and an embedding's, beside plain PyTorch on the same cores, in float32."""

import math
import statistics

import operators
import rows
from operators import Operator

WORST = "ratio <= 1.3"
MEAN_OF = [operators.SORT, operators.TOPK, operators.CUMSUM, operators.SCATTER_ADD, operators.EMBEDDING_BAG]
OTHERS = [
    Operator("topk(50), 150,000", operators.line(150_000), lambda x: x.topk(50)[0]),
    Operator("topk(50), 8 x 32,000", lambda: (operators.long_lines()[0][:8, :32_000].contiguous(),), lambda x: x.topk(50)[0]),
    Operator("kthvalue(1,000), 10^6", operators.line(1_000_000), lambda x: x.kthvalue(min(1000, x.numel()))[0]),
    Operator("median, 10^6", operators.line(1_000_000), lambda x: x.median()),
    operators.INDEX_ADD, operators.INDEX_PUT, operators.EMBEDDING_BACKWARD, operators.UNIQUE,
]


def measure(operator: Operator) -> float:
    return operators.measure(operator, "cpu", "plain PyTorch, CPU", calls=4, turns=11, target=WORST)


def main() -> None:
    ratios = [measure(operator) for operator in MEAN_OF]
    rows.emit("sort, topk, cumsum, scatter_add, embedding_bag: geometric mean", math.exp(statistics.mean(map(math.log, ratios))), "of plain's time",
              target="value <= 1.0")
    for operator in OTHERS:
        measure(operator)


if __name__ == "__main__":
    main()
