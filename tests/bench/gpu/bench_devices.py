"""Several devices of one daemon, from C++ (../device_lanes.cc): the machine's GPUs and its CPU device; in a smoke run, perhaps CPU devices."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "tools/lib")]

import bench_devices  # noqa: E402

if __name__ == "__main__":
    if os.environ["XPUD_BENCH_PLAIN"] == "cpu":
        bench_devices.on_cpu_devices()
    else:
        bench_devices.main("--device", "auto")
