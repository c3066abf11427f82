"""The cost of a command in long streams of small ones, from C++ (command_costs)."""

import json
import os
import pathlib
import subprocess

import rows


def main() -> None:
    program = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "command_costs"
    process = subprocess.run([program, os.environ["XPUD_ADDRESS"]], check=True, stdout=subprocess.PIPE, text=True)
    for line in process.stdout.splitlines():
        stream = json.loads(line)
        rows.emit(f"{stream['stream']}, a command", stream["ns"][0], "ns")


if __name__ == "__main__":
    main()
