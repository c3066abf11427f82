"""The neighbour of bench_neighbour.py: `products SECONDS` computes float32 products of SIZE x SIZE without a pause, two of them issued ahead."""

import sys
import time

import torch

import channel


def products(size: int, seconds: float) -> float:
    """Returns how many of them ended in a second."""
    a, b = (torch.ones(size, size, device="xpud") for _ in range(2))
    issued = [a @ b, a @ b, a @ b]
    issued[0][0, 0].item()  # weights are packed, and others are in flight
    channel.emit("began")
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        issued.append(a @ b)
        issued.pop(0)[0, 0].item()
        count += 1
    rate = count / (time.perf_counter() - began)
    torch.xpud.synchronize()
    return rate


def main() -> None:
    size = int(sys.argv[1])
    channel.emit("ready")
    while words := channel.await_command():
        channel.emit("done", rate=products(size, float(words[1])))


if __name__ == "__main__":
    main()
