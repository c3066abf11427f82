"""PyTorch on a daemon whose Level Zero loader wraps every handle, as a loader does that has several driver libraries."""

import unittest
from unittest import mock

from harness import DaemonTest

# Trains on the CPU and on the device, with matrix products (HOST modules) and compiled kernels. Says the losses' difference.
TRAINING = """
def train(device):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(32, 8, generator=generator).to(device).requires_grad_()
    x = torch.randn(64, 32, generator=generator).to(device)
    for _ in range(20):
        loss = ((x @ weights).softmax(1) - 0.125).square().mean()
        loss.backward()
        with torch.no_grad(): weights -= weights.grad
        weights.grad = None
    return loss.item()
expected = train("cpu")
say("right" if abs(train("xpud") - expected) < 1e-5 else "wrong")
x = torch.arange(1 << 20)
say("right" if torch.equal(x.to("xpud").cumsum(0).cpu(), x.cumsum(0)) else "wrong")
"""


class WrappedHandles(DaemonTest):
    FLAGS = ("--device", "cpu")

    def setUp(self):
        with mock.patch.dict("os.environ", {"ZE_ENABLE_LOADER_INTERCEPT": "1"}):
            super().setUp()

    def test_torch_trains(self):
        client = self.client(TRAINING)
        self.assertEqual([client.hear(), client.hear()], ["right", "right"])

    def test_devices_are_listed(self):
        self.assertEqual(len(self.daemon.devices()), 1)
        self.assertIn("cpu", self.daemon.ask("devices").lower())


class WrappedHandlesAsynchronous(WrappedHandles):
    FLAGS = ("--device", "cpu", "--asynchronous")


class WrappedHandlesInAnExecutor(WrappedHandles):
    FLAGS = ("--device", "cpu", "--executor", "process")


if __name__ == "__main__":
    unittest.main()
