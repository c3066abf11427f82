"""The plain PyTorch counterpart of the C++ client sdk/examples/score.cc: same commands, same events.

Commands: `score INDEX` loads rows of float32 from the file INDEX and finds the best rows for each query.
"""

import argparse
import time

import channel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", required=True, help="rows of float32")
    parser.add_argument("--dimensions", type=int, required=True)
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=100, help="how often each index is scored")
    arguments = parser.parse_args()

    import numpy
    import torch

    def rows_of(path: str) -> torch.Tensor:
        return torch.from_numpy(numpy.fromfile(path, dtype=numpy.float32)).view(-1, arguments.dimensions)

    queries = rows_of(arguments.queries)
    channel.emit("ready")
    while (words := channel.await_command()) and words[0] == "score":
        index = rows_of(words[1])
        began = time.monotonic()
        for _ in range(arguments.repeat):
            scores = queries @ index.T
        seconds = time.monotonic() - began
        best = scores.topk(min(arguments.top, len(index)), dim=1)
        channel.emit("scored", rows=len(index), seconds=seconds / arguments.repeat,
                     results=[[{"row": r, "score": s} for r, s in zip(rows, values)]
                              for rows, values in zip(best.indices.tolist(), best.values.tolist())])


if __name__ == "__main__":
    main()
