"""Two processes that embed docstrings at once: their throughput together, beside one of them alone."""

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


def main() -> None:
    count, rounds = (64, 1) if rows.SMOKE else (512, 5)
    texts = [entry["text"] for entry in corpus.load(ROOT / "build/demo/docstrings.json", count)]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "texts.json")
        source.write_text(json.dumps(texts))
        children = [Child(f"embed {i}", [sys.executable, DEMO / "embed.py", "--device", "xpud", "--texts", source, "--out",
                                         pathlib.Path(folder, f"{i}.f32")]) for i in range(2)]
        for child in children:
            child.expect("ready")
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for together in (1, 2):
                for child in children[:together]:
                    child.send("go", 0)
                longest = max(child.expect("done")["seconds"] for child in children[:together])
                rates[together].append(together * len(texts) / longest)
        for child in children:
            child.close()
    rows.emit("two processes embedding", statistics.median(rates[2]), "docstrings/s", "one process", statistics.median(rates[1]),
              "ratio >= 0.95")


if __name__ == "__main__":
    main()
