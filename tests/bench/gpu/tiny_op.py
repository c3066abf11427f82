"""The smallest useful eager op: a + b of 16x16 float32."""

import torch


class TinyOp:
    def __init__(self, device: str):
        self._a, self._b = (torch.rand(16, 16).to(device) for _ in range(2))

    def issue(self, count: int) -> None:
        a, b = self._a, self._b
        for _ in range(count):
            a + b
