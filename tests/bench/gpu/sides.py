"""The two sides of each comparison here: plain PyTorch on the GPU, and xpud. Without a GPU, as in a smoke run, both are on the CPU,
and targets do not count."""

import os

import torch

PLAIN = os.environ["XPUD_BENCH_PLAIN"]  # what plain PyTorch calls the device that the daemon has
PLAIN_NAME = {"cuda": "plain PyTorch, CUDA", "cpu": "plain PyTorch, CPU"}[PLAIN]
ON_GPU = PLAIN != "cpu"
DEVICES = (PLAIN, "xpud")


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def target(text: str) -> str:
    """A target, which is one for GPUs."""
    return text if ON_GPU else ""
