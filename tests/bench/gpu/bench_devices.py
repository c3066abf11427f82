"""Several devices of one daemon, from C++ (../device_lanes.cc): the machine's GPUs and its CPU device."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "tools/lib")]

import bench_devices  # noqa: E402

if __name__ == "__main__":
    bench_devices.main("--device", "auto")
