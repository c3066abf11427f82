"""The two sides of each comparison: plain PyTorch on the GPU, and xpud. Without a GPU, as in a smoke run, both use the CPU, and targets do not count."""

import os

import torch

PLAIN = os.environ["XPUD_BENCH_PLAIN"]  # plain PyTorch's name of the daemon's device
PLAIN_NAME = {"cuda": "plain PyTorch, CUDA", "cpu": "plain PyTorch, CPU"}[PLAIN]
ON_GPU = PLAIN != "cpu"
DEVICES = (PLAIN, "xpud")


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def target(text: str) -> str:
    """Returns a target that counts on GPUs only."""
    return text if ON_GPU else ""
