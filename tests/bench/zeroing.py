"""The cost of zeroing memory when it changes its user: allocating and freeing in turns with a session of another user, and with one of the same user; and
its part of the start of a process with MiniLM, whose memory may all have belonged to another user."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import rows

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE / "gpu"))  # the encoder's processes run on the CPU device as well

import workers  # noqa: E402

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])
ON_GPU = os.environ["XPUD_BENCH_PLAIN"] != "cpu"
SIZES = [1 << 20, 16 << 20, 64 << 20, 256 << 20]


def start() -> int:
    """Runs a process with MiniLM on the device until its first result. Returns the bytes of its tensors."""
    worker = workers.start("encoder", "xpud")
    worker.expect("ready")
    worker.send("open", "bfloat16" if ON_GPU else "float32", 1, 16, 1)
    tensor_bytes = worker.expect("opened")["tensor_bytes"]
    worker.close()
    return tensor_bytes


def main() -> None:
    if os.geteuid() != 0:
        raise SystemExit("zeroing: only root can be two users")
    output = subprocess.run([BINARIES / "hand_over", *map(str, SIZES)], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in output.splitlines():
        size = json.loads(line)
        rows.emit(f"take {size['bytes'] >> 20} MiB and give it back, in turns with another user", size["handed_ns"] / 1e3, "us",
                  "with the same user", size["kept_ns"] / 1e3)
    ns_a_byte = (size["handed_ns"] - size["kept_ns"]) / size["bytes"]
    rows.emit(f"zeroing {size['bytes'] >> 20} MiB", 1 / ns_a_byte, "GB/s")
    tensor_bytes = start()
    seconds = statistics.median(rows.seconds(start) for _ in range(1 if rows.SMOKE else 5))
    rows.emit(f"zeroing MiniLM's {tensor_bytes / 1e6:.0f} MB", tensor_bytes * ns_a_byte / 1e6, "ms", "a process's start with it", seconds * 1e3)


if __name__ == "__main__":
    main()
