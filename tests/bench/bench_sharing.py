"""Processes that share the device: two that embed docstrings, beside one alone; a trainer beside both."""

import json
import pathlib
import statistics
import sys
import tempfile

import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "tools/demo_lib"
sys.path.insert(0, str(DEMO))

import corpus  # noqa: E402
from channel import Child  # noqa: E402


def child(name: str, program: str, *arguments) -> Child:
    return Child(name, [sys.executable, DEMO / program, "--device", "xpud", *arguments])


def embedding(children: list[Child], texts: int, rounds: int) -> None:
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for together in (1, 2):
            for each in children[:together]:
                each.send("go", 0)
            longest = max(each.expect("done")["seconds"] for each in children[:together])
            rates[together].append(together * texts / longest)
    rows.emit("two processes embedding", statistics.median(rates[2]), "docstrings/s", "one process", statistics.median(rates[1]),
              "ratio >= 0.95")


def training(children: list[Child], trainer: Child, rounds: int) -> None:
    """A trainer of a small model, whose ops take microseconds, beside two processes whose ops take milliseconds."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for shared in (False, True):
            for each in children if shared else ():
                each.send("go", 0)
            trainer.send("go", 0)
            times[shared].append(trainer.expect("done")["seconds"])
            for each in children if shared else ():
                each.expect("done")
    rows.emit("training beside two that embed", statistics.median(times[True]), "s", "training alone", statistics.median(times[False]))


def main() -> None:
    count, rounds = (64, 1) if rows.SMOKE else (512, 5)
    texts = [entry["text"] for entry in corpus.load(ROOT / "build/demo/docstrings.json", count)]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "texts.json")
        source.write_text(json.dumps(texts))
        children = [child(f"embed {i}", "embed.py", "--texts", source, "--out", pathlib.Path(folder, f"{i}.f32")) for i in range(2)]
        trainer = child("train", "train.py", "--epochs", 2 if rows.SMOKE else 15)
        everybody = [*children, trainer]
        for each in everybody:
            each.expect("ready")
        embedding(children, len(texts), rounds)
        training(children, trainer, rounds)
        for each in everybody:
            each.close()


if __name__ == "__main__":
    main()
