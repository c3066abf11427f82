"""Runs PyTorch's op database and module database on xpud, and compares the results with the CPU ("the net").

    python opnet.py --dtype float32 --full --json out.json              every operator in float32
    python opnet.py --op addmm --op nn.functional.gelu --aspect out     one aspect of two operators
    python opnet.py --shard 0/5                                         a fifth of the operators

Items run in worker processes: a crash or a hang is a failure of its item, and the other items still run.
"""

import argparse
import collections
import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ITEM_TIMEOUT = 120.0
IMPORT_TIMEOUT = 180.0
COMPILED_TYPES = ("float32", "bfloat16", "int64")
Work = collections.namedtuple("Work", "database name dtype full aspects")


# ---- the worker


def worker():
    """Reads one item from each line of standard input. Writes one line of findings for each to the original standard output."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import faulthandler
    import warnings

    import torch
    import torch_xpud  # noqa: F401  also without the entry point

    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from opnet_modules import run_module
    from opnet_ops import run_item

    calls = {"ops": run_item, "modules": run_module, "planted": run_planted, "compiled": run_compiled, "compiled_modules": run_compiled_module}
    send = lambda **message: channel.write(json.dumps(message) + "\n")  # noqa: E731
    send(ready=True)
    for line in sys.stdin:
        work = Work(**json.loads(line))
        started = time.process_time()
        found = calls[work.database](work.name, getattr(torch, work.dtype), work.full, work.aspects, lambda aspect: send(at=aspect))
        send(done=True, seconds=time.process_time() - started, **found)


def run_compiled(*item):
    import opnet_compiled  # imports the compiler

    return opnet_compiled.run_item(*item)


def run_compiled_module(*item):
    import opnet_compiled

    return opnet_compiled.run_module(*item)


def run_planted(name, dtype, full, aspects, announce):
    """A planted fault, which the runner must survive and report."""
    announce("planted")
    if name == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "hang":
        time.sleep(1000)
    return {"failures": [], "fell_back": {"forward": {}, "backward": {}}, "compared": 1}


class Worker:
    """A worker process. Restarted after a crash or a hang."""

    def __init__(self, timeout):
        self.process, self.timeout = None, timeout

    def start(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "opnet.py"), "--worker"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, cwd=HERE)  # fmt: skip
        self.pending = b""
        if not self.receive(IMPORT_TIMEOUT):  # the message "ready"
            raise RuntimeError(f"a worker did not start: {self.end('')}")

    def receive(self, timeout):
        """Returns the next message, or None if the process has ended or sends nothing within the timeout."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                return None
            self.pending += read
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def run(self, work):
        """Runs an item and returns its findings."""
        if self.process is None:
            self.start()
        self.process.stdin.write(json.dumps(work._asdict()).encode() + b"\n")
        self.process.stdin.flush()
        aspect, deadline = "", time.monotonic() + self.timeout * (4 if work.full else 1)
        while message := self.receive(max(deadline - time.monotonic(), 0)):
            if message.get("done"):
                return message
            aspect = message["at"]
        return {"failures": [self.lost(aspect)], "fell_back": {"forward": {}, "backward": {}}, "compared": 1, "seconds": 0.0}

    def lost(self, aspect):
        """Returns the failure of an item whose process crashed or hung."""
        time.sleep(0.2)
        hung = self.process.poll() is None
        if hung:
            self.process.send_signal(signal.SIGABRT)  # faulthandler reports the position
        message = self.end("hung" if hung else "crashed")
        return {"aspect": aspect, "variant": "", "kind": "hang" if hung else "crash", "message": message}

    def end(self, what):
        """Ends the process. Returns the end of its log."""
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().splitlines()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self.process = None
        at = next((i for i, line in enumerate(lines) if "Fatal Python error" in line), max(len(lines) - 6, 0))
        return f"{what} ({code}): " + " | ".join(line.strip() for line in lines[at : at + 8])

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.end("")


# ---- the runner


def run_all(works, jobs=2, progress=sys.stderr, timeout=ITEM_TIMEOUT):
    """Runs items in `jobs` processes. Returns {work: found}."""
    todo, results, failed = queue.SimpleQueue(), {}, []
    for work in works:
        todo.put(work)

    def serve():
        served = Worker(timeout)
        try:
            while True:
                try:
                    work = todo.get_nowait()
                except queue.Empty:
                    break
                results[work] = served.run(work)
        except Exception as error:
            failed.append(error)
        finally:
            served.close()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    report_progress(threads, results, len(works), progress)
    if failed:
        raise failed[0]
    return results


def report_progress(threads, results, total, progress, every=5.0):
    started = last = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.2)
        if time.monotonic() - last >= every:
            last = time.monotonic()
            done = dict(results)
            bad = sum(bool(found["failures"]) for found in done.values())
            print(f"    {last - started:4.0f} s: {len(done)} of {total} items, {bad} with differences", file=progress, flush=True)


# ---- choice of items


def part_of(name, parts):
    """Returns the number of the part, of `parts`, to which an entry belongs with all its types."""
    return zlib.crc32(name.encode()) % parts


def known_types(database):
    """Returns the types in which each entry of a database runs, by name."""
    if database in ("ops", "compiled"):
        from opnet_ops import OPS as entries
        from opnet_ops import types_of
    else:
        from opnet_modules import MODULES as entries
        from opnet_modules import types_of
    known = {name: [str(t).removeprefix("torch.") for t in types_of(entry)] for name, entry in entries.items()}
    if database.startswith("compiled"):
        known = {name: [t for t in types if t in COMPILED_TYPES] or types[:1] for name, types in known.items()}
    return known


def works_of(database, full_if=lambda name: False, types=None):
    """Returns the items of a database. If `full_if(name)`, they run all samples in all types (or in `types`); otherwise some samples in the first type
    (or in `types`)."""
    works = []
    for name, known in known_types(database).items():
        full = full_if(name)
        chosen = [t for t in known if t in types] if types else known if full else known[:1]
        works += [Work(database, name, t, full, ()) for t in chosen]
    return works


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--database", choices=("ops", "modules", "compiled", "compiled_modules"), default="ops")
    parser.add_argument("--op", action="append", help="only this entry; may be repeated")
    parser.add_argument("--dtype", action="append", help="only this type; may be repeated")
    parser.add_argument("--aspect", action="append", help="only this aspect; may be repeated")
    parser.add_argument("--shard", default="0/1", help="I/N: one of N parts")
    parser.add_argument("--full", action="store_true", help="all samples")
    parser.add_argument("--all", action="store_true", help="print listed exceptions, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", help="write what was found to this file")
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    part, parts = map(int, arguments.shard.split("/"))
    works = works_of(arguments.database, lambda name: arguments.full, arguments.dtype)
    works = [work._replace(aspects=tuple(arguments.aspect or ())) for work in works
             if part_of(work.name, parts) == part and work.name in (arguments.op or [work.name])]  # fmt: skip
    from opnet_judge import described, unexplained

    results = run_all(works, arguments.jobs)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{**work._asdict(), **found} for work, found in results.items()], file, indent=1)
    for work, found in sorted(results.items(), key=lambda pair: pair[0].name):
        print("".join(line + "\n" for line in described(work, found["failures"] if arguments.all else unexplained(work, found))), end="")
    print(f"{len(results)} items, {sum(bool(unexplained(w, f)) for w, f in results.items())} with differences that are not listed, "
          f"{sum(f['seconds'] for f in results.values()):.0f} s of processor time in workers")  # fmt: skip


if __name__ == "__main__":
    main()
