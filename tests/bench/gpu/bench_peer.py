"""Copies between two devices of one daemon, both ways, beside plain PyTorch between the same GPUs. A smoke run, or a machine with one GPU, has a daemon
of its own with two CPU devices, and plain PyTorch's copy on the CPU as the baseline, without targets."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "tools/lib")]
BINARIES = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"])


def measure(plain: str, there: str) -> None:
    import rows
    import sides
    import torch

    large = (16 if rows.SMOKE else 1024) << 20
    turns = 3 if rows.SMOKE else 21
    between_gpus = plain != there
    ends = {"plain": (plain, there), "xpud": ("xpud:0", "xpud:1")}

    def synchronize(device: str) -> None:
        kind = getattr(torch, torch.device(device).type)
        kind.synchronize(*([] if kind is torch.cpu else [device]))

    for bytes_, in_a_row in ((large, 2 if rows.SMOKE else 10), (1 << 20, 2 if rows.SMOKE else 100)):
        pairs = {side: tuple(torch.rand(bytes_ // 4, device="cpu").to(device) for device in devices) for side, devices in ends.items()}
        for name, order in (("one way", (0, 1)), ("back", (1, 0))):
            def copy(side: str, order: tuple[int, int] = order, pairs=pairs, count: int = in_a_row) -> None:
                source, target = (pairs[side][i] for i in order)
                for _ in range(count):
                    target.copy_(source, non_blocking=True)
                for tensor in (source, target):
                    synchronize(str(tensor.device))

            for side in ends:
                copy(side)
                assert torch.equal(*(tensor.cpu() for tensor in pairs[side])), "the copy differs"
            times = rows.interleaved({side: lambda side=side: copy(side) for side in ends}, turns)
            speed = {side: bytes_ * in_a_row / times[side] / 1e9 for side in ends}
            rows.emit(f"copy between devices, {bytes_ >> 20} MiB, {name}", speed["xpud"], "GB/s", sides.PLAIN_NAME, speed["plain"],
                      "ratio >= 0.9" if between_gpus and bytes_ == large else "")


def main() -> None:
    import torch
    if os.environ["XPUD_BENCH_PLAIN"] == "cuda" and torch.cuda.device_count() > 1:
        return measure("cuda:0", "cuda:1")
    from daemon import Daemon  # tools/lib
    daemon = Daemon(BINARIES, BINARIES.parent / "bench-peer-own.log", "--device", "cpu", "--test-devices", "2")
    try:
        os.environ["XPUD_ADDRESS"] = str(daemon.address)
        measure("cpu", "cpu")
    finally:
        daemon.close()


if __name__ == "__main__":
    main()
