"""One side of the comparison: the demo's four processes on one device, and their measurements."""

import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Callable

from channel import Child

HERE = pathlib.Path(__file__).resolve().parent
DIMENSIONS = 384  # of MiniLM's embeddings
TOP = 3


@dataclasses.dataclass
class Round:
    """One run of the whole job, all processes at once."""
    seconds: float               # until the embeddings and the training were done
    texts_per_second: float      # both embedding processes together
    training_seconds: float
    accuracy: float              # on the test part, 0 to 1
    score_seconds: float         # all queries against the whole index, the others idle
    scorings: int                # number of scorings of the growing index while the others worked
    results: list[list[dict]]    # for each query the best rows


class Side:
    """Starts the processes; `run` does the job once. Not thread-safe."""

    def __init__(self, name: str, device: str, texts: list[str], queries: list[str], folder: pathlib.Path, epochs: int,
                 score: Callable[[pathlib.Path], list], env: dict[str, str]):
        self.name = name
        self._folder = folder
        self._texts = texts
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        (folder / "queries.json").write_text(json.dumps(queries))
        self._embedders = [self._start_embedder(i, device, env) for i in range(2)]
        self._trainer = Child(f"{name} train", [sys.executable, HERE / "train.py", "--device", device, "--epochs", epochs], env)
        for child in (*self._embedders, self._trainer):
            child.expect("ready")
        self._scorer = Child(f"{name} score", score(folder / "queries.f32"), env)
        self._scorer.expect("ready")
        self.start_seconds = time.monotonic() - began

    def _part(self, i: int) -> list[str]:
        return self._texts[i::2]

    def _out(self, i: int) -> pathlib.Path:
        return self._folder / f"part{i}.f32"

    def _start_embedder(self, i: int, device: str, env: dict[str, str]) -> Child:
        texts = self._folder / f"part{i}.json"
        texts.write_text(json.dumps(self._part(i)))
        command = [sys.executable, HERE / "embed.py", "--device", device, "--texts", texts, "--out", self._out(i)]
        if i == 0:
            command += ["--queries", self._folder / "queries.json", "--queries-out", self._folder / "queries.f32"]
        return Child(f"{self.name} embed {i + 1}", command, env)

    def run(self, threads: int = 0, meanwhile: Callable[[], None] | None = None) -> Round:
        """Does the job once. `threads`: threads of each process's own CPU kernels, 0 for PyTorch's default. Calls `meanwhile` once, when a third
        of the texts is done."""
        rows = [0, 0]
        done: dict[int, dict] = {}
        scorings, score_pending = 0, False
        began = time.monotonic()
        workers = [*self._embedders, self._trainer]
        for child in workers:
            child.send("go", threads)
        while len(done) < len(workers):
            for i, child in enumerate(workers):
                event = None if i in done else child.next_event(0.01)
                if event and event["event"] == "piece":
                    rows[i] = event["rows"]
                elif event and event["event"] == "done":
                    done[i] = event
            if score_pending and self._scorer.next_event(0):
                score_pending, scorings = False, scorings + 1
            elif not score_pending and sum(rows) and len(done) < len(workers):
                self._score(rows)
                score_pending = True
            if meanwhile and sum(rows) * 3 >= len(self._texts):
                meanwhile()
                meanwhile = None
        seconds = time.monotonic() - began
        if score_pending:
            self._scorer.expect("scored")
        if meanwhile:
            meanwhile()
        final = self._score_all()
        return Round(seconds=seconds, texts_per_second=len(self._texts) / max(done[0]["seconds"], done[1]["seconds"]),
                     training_seconds=done[2]["seconds"], accuracy=done[2]["accuracy"], score_seconds=final["seconds"],
                     scorings=scorings, results=self._in_text_order(final["results"]))

    def _score(self, rows: list[int]) -> None:
        """Gives the scoring process the index so far: the first rows[i] rows of each part."""
        index = self._folder / "index.f32"
        with index.open("wb") as out:
            for i in range(2):
                with self._out(i).open("rb") as part:
                    out.write(part.read(rows[i] * DIMENSIONS * 4))
        self._scorer.send("score", index)

    def _score_all(self) -> dict:
        self._score([len(self._part(0)), len(self._part(1))])
        return self._scorer.expect("scored")

    def _in_text_order(self, results: list[list[dict]]) -> list[list[dict]]:
        first = len(self._part(0))
        return [[{"text": r["row"] * 2 if r["row"] < first else (r["row"] - first) * 2 + 1, "score": r["score"]} for r in of_query]
                for of_query in results]

    def embeddings(self):
        """Returns all embeddings of the last run, in the order of the texts."""
        import numpy
        rows = numpy.empty((len(self._texts), DIMENSIONS), numpy.float32)
        for i in range(2):
            rows[i::2] = numpy.fromfile(self._out(i), dtype=numpy.float32).reshape(-1, DIMENSIONS)
        return rows

    def pids(self) -> dict[int, str]:
        """Returns the role of each process, by its id."""
        embedders = {child.pid: f"embeds, part {i + 1}" for i, child in enumerate(self._embedders)}
        return embedders | {self._trainer.pid: "trains", self._scorer.pid: "scores"}

    def close(self) -> None:
        for child in (*self._embedders, self._trainer, self._scorer):
            child.close()
