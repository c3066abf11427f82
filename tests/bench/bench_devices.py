"""Several devices of one daemon, from C++ (device_lanes.cc): CPU devices here, which --test-devices makes."""

import os
import pathlib
import subprocess
import sys

BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])


def main(*flags: str) -> None:
    from daemon import Daemon  # tools/lib
    daemon = Daemon(BINARIES, BINARIES.parent / "bench-devices-own.log", *flags)
    try:
        subprocess.run([BINARIES / "device_lanes", str(daemon.address)], check=True)
    finally:
        daemon.close()


def on_cpu_devices() -> None:
    main("--device", "cpu", "--test-devices", "2")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/lib"))
    on_cpu_devices()
