"""Operators that order and scatter, beside plain PyTorch on the same GPU, in float32. A turn is 20 calls and the wait for the last."""

import operators
import sides
from operators import Operator

TARGETS = [
    (operators.SORT, "ratio <= 0.5"),
    (Operator("sort, 10^7", operators.line(10_000_000), lambda x: x.sort()[0]), "ratio <= 1.5"),
    (operators.TOPK, "ratio <= 1.0"),
    (operators.CUMSUM, "ratio <= 1.0"),
    (operators.UNIQUE, "ratio <= 1.0"),
    (operators.SCATTER_ADD, "ratio <= 1.0"),
    (operators.INDEX_ADD, "ratio <= 1.0"),
    (operators.EMBEDDING_BACKWARD, "ratio <= 1.0"),
]


def main() -> None:
    for operator, target in TARGETS:
        operators.measure(operator, sides.PLAIN, sides.PLAIN_NAME, calls=20, turns=21, target=sides.target(target))


if __name__ == "__main__":
    main()
