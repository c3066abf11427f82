"""xpud's main job: several processes share a device through the daemon, on real input. See tools/demo."""

import argparse
import os
import pathlib
import re
import sys
import time

import corpus
import numpy
from side import TOP, Round, Side

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402

IN_BUNDLE = (ROOT / "bin/xpud").exists()  # an unpacked archive of tools/bundle instead of a clone
BINARIES = ROOT / "bin" if IN_BUNDLE else ROOT / "build/release/bin"
WORK = ROOT / "build/demo"
MIN_COSINE = 0.9999
MAX_ACCURACY_DIFFERENCE = 0.005
QUERIES = ["parse a date from a string", "compress data before sending it", "run several functions in parallel",
           "find the longest common part of two sequences"]

QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error",
         "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


def device_and_why(daemon: Daemon, wanted: str) -> str:
    """Returns the demo's device, which is the daemon's first, and the reason for the choice."""
    device = daemon.devices()[0]
    if device["kind"] == "gpu":
        return f"the GPU {device['name']}: " + ("you asked for it" if wanted == "cuda" else "the best device of this machine")
    missing = re.findall(r'back_end_without_device reason="(.*)"', daemon.log.read_text())
    return "the CPU: " + ("you asked for it" if wanted == "cpu" else f"this machine has no GPU that xpud can use ({'; '.join(missing)})" if missing
                          else "this machine has no GPU that xpud can use")


class Step:
    """Prints the demo's steps with numbers, and the time of each."""
    total = 5
    count = 0

    def __init__(self, what: str):
        Step.count += 1
        print(f"\n[{Step.count}/{Step.total}] {what}", flush=True)


def print_results(entries: list[dict], results: list[list[dict]]) -> None:
    for query, best in zip(QUERIES, results):
        print(f'\n    "{query}"')
        for row in best:
            entry = entries[row["text"]]
            print(f"      {row['score']:.3f}  {entry['name']:<40.40} {entry['text'][:70]}")


def print_speed(before: Round, now: Round) -> None:
    print(f"\n    {'all processes at once':<34} {'plain PyTorch':>14} {'xpud':>10} {'xpud is':>12}")
    for label, old, new, unit, more_is_better in (
            ("whole job", before.seconds, now.seconds, "s", False),
            ("docstrings embedded", before.texts_per_second, now.texts_per_second, "/s", True),
            ("classifier trained", before.training_seconds, now.training_seconds, "s", False),
            (f"{len(QUERIES)} queries scored, others idle", before.score_seconds * 1e6, now.score_seconds * 1e6, "us", False)):
        ratio = new / old if more_is_better else old / new
        print(f"    {label:<34} {old:>11.1f} {unit:<2} {new:>7.1f} {unit:<2} {ratio:>8.2f}x as fast")
    print(f"    plain PyTorch with {plain_threads()} thread(s) a process, so that the processes share the cores evenly")


def cosines(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    return (a * b).sum(1) / (numpy.linalg.norm(a, axis=1) * numpy.linalg.norm(b, axis=1))


def judge(plain: Side, ours: Side, plain_round: Round, our_round: Round) -> list[str]:
    """Prints how well the two sides agree. Returns what misses the requirements."""
    agreement = cosines(plain.embeddings(), ours.embeddings())
    lowest = agreement.min()
    print(f"    embeddings: cosine to plain PyTorch's at least {lowest:.7f} in {len(agreement)} of {len(agreement)}, required: {MIN_COSINE}")
    print(f"    classifier: test accuracy {our_round.accuracy:.2%} on xpud, {plain_round.accuracy:.2%} on plain PyTorch")
    short = []
    if not lowest >= MIN_COSINE:
        short.append(f"{(~(agreement >= MIN_COSINE)).sum()} embeddings agree less than {MIN_COSINE}")
    if not abs(our_round.accuracy - plain_round.accuracy) <= MAX_ACCURACY_DIFFERENCE:
        short.append("the accuracies differ by more than half a point")
    return short


def show_top(daemon: Daemon, roles: dict[int, str], interval: float) -> None:
    picture = daemon.ask("top", "--once", "--interval", str(interval))
    print("    $ xpuctl top --once\n    | " + picture.rstrip().replace("\n", "\n    | "))
    print("    " + ", ".join(f"{pid} {role}" for pid, role in roles.items()), flush=True)


def plain_threads() -> int:
    """For plain PyTorch: the cores divided among the three busy processes. Its default, all cores in each process, is several times slower when
    processes share the cores."""
    return max(len(os.sched_getaffinity(0)) // 3, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo")
    parser.add_argument("--quick", action="store_true", help="200 docstrings and a short training, as in the tests")
    parser.add_argument("--all", action="store_true", help="all docstrings instead of 2,000")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    count, epochs = (200, 6) if arguments.quick else (None if arguments.all else 2000, 30)
    began = time.monotonic()

    Step("The daemon")
    try:
        daemon = Daemon(BINARIES, WORK / "xpud.log", "--device", arguments.device)
    except RuntimeError as error:
        sys.exit(f"demo: {error}")
    sides: list[Side] = []
    try:
        for device in daemon.devices():
            print(f"    device {device['index']}: {device['name']}, {device['compute_units']} units, "
                  f"{device['memory_total_bytes'] / 2**30:.1f} GiB")
        print(f"    running on {device_and_why(daemon, arguments.device)}\n    clients find it at XPUD_ADDRESS={daemon.address}")

        Step("The processes: two embed docstrings, one trains, one (C++) scores queries; once on plain PyTorch, once on xpud")
        entries = corpus.load(WORK / "docstrings.json", count)
        texts = [f"{entry['name']}: {entry['text']}" for entry in entries]
        print(f"    {len(texts)} docstrings of Python {sys.version.split()[0]}'s standard library")
        here = pathlib.Path(__file__).resolve().parent
        beside = {"cuda": "cuda"}.get(daemon.devices()[0]["vendor"], "cpu")  # PyTorch's own name of the same device
        plain = Side("plain", beside, texts, QUERIES, WORK / "plain", epochs, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                     score=lambda queries: [sys.executable, here / "score_plain.py", "--queries", queries, "--dimensions", "384"])
        sides.append(plain)
        # Every op of these processes must run on the device: falling back to the CPU is an error here.
        ours = Side("xpud", "xpud", texts, QUERIES, WORK / "xpud", epochs,
                    env={"XPUD_ADDRESS": str(daemon.address), "XPUD_FALLBACK": "error"},
                    score=lambda queries: [BINARIES / "xpud_score", queries, "384", str(TOP)])
        sides.append(ours)
        print(f"    ready after {plain.start_seconds:.1f} s (plain) and {ours.start_seconds:.1f} s (xpud), imports and warm-up included")
        sessions = daemon.sessions()
        if {session["pid"] for session in sessions} != ours.pids().keys():
            raise RuntimeError(f"xpuctl ps shows {len(sessions)} sessions, not the four processes")

        Step("The job, all four processes at once, on each side in turn")
        before = plain.run(threads=plain_threads())
        print(f"    plain PyTorch: {before.seconds:.1f} s", flush=True)
        now = ours.run(meanwhile=lambda: show_top(daemon, ours.pids(), 0.2 if arguments.quick else 1))
        print(f"    xpud: {now.seconds:.1f} s; the growing index was scored {now.scorings} times meanwhile", flush=True)

        Step("Results of the search")
        print_results(entries, now.results)

        Step("Agreement and speed")
        short = judge(plain, ours, before, now)
        print_speed(before, now)
    finally:
        for side in sides:
            side.close()
        daemon.close()

    print(f"""
done in {time.monotonic() - began:.0f} s. What to try next:
    {f"PYTHONPATH={ROOT}/build/site " if IN_BUNDLE else ""}{sys.executable} -c "import torch; print((torch.ones(3, device='xpud') * 2).sum())"
    {BINARIES}/xpuctl top                      # while your own processes run on device='xpud'
    tools/demo --all                                  # every docstring
    tools/bench                                       # the figures in tests/bench/results/README.md, on this machine""")
    for reason in short:
        print(f"demo: requirement missed: {reason}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
