"""Recurrent layers and normalisations over many shapes and types: results and gradients have no larger errors than PyTorch's CPU.

Both are compared with float64. With XPUD_TEST_FULL (`tools/test --full`) over more shapes, and once more for each older instruction set
that oneDNN can be told to use.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn

FULL = "XPUD_TEST_FULL" in os.environ
TYPES = (torch.float32, torch.bfloat16, torch.float16)
INSTRUCTION_SETS = ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16")  # ONEDNN_MAX_CPU_ISA


def recurrent():
    """Yields a name, a module and its input's sizes. oneDNN's products differ with the sizes and with the parts that are left of a block."""
    sizes = (1, 7, 16, 33, 48, 80, 112, 200) if FULL else (7, 48, 80)
    layers = ("LSTM", "GRU", "RNN")
    for kind, inputs, hidden, batch in itertools.product(layers, sizes, sizes, (1, 5, 32) if FULL else (1, 5)):
        yield f"{kind} {inputs} {hidden} batch {batch}", getattr(nn, kind)(inputs, hidden), (3, batch, inputs)
    yield "LSTM of two layers, both directions", nn.LSTM(48, 80, num_layers=2, bidirectional=True), (6, 4, 48)
    yield "LSTM with a projection", nn.LSTM(48, 80, proj_size=24), (6, 4, 48)


def normalising():
    lengths = (1, 3, 17, 64, 100, 768, 1000, 4099, 10_000) if FULL else (3, 100, 4099)
    for rows, length in itertools.product((1, 5, 64) if FULL else (5,), lengths):
        yield f"LayerNorm {rows} {length}", nn.LayerNorm(length), (rows, length)
        yield f"RMSNorm {rows} {length}", nn.RMSNorm(length, eps=1e-5), (rows, length)
    for batch, channels, side in itertools.product((1, 4), (4, 20, 96) if FULL else (4, 20), (1, 5, 14, 40) if FULL else (5, 14)):
        yield f"GroupNorm {batch} {channels} {side}", nn.GroupNorm(4, channels), (batch, channels, side, side)
        if batch * side > 1:
            yield f"BatchNorm2d {batch} {channels} {side}", nn.BatchNorm2d(channels), (batch, channels, side, side)
        if side > 1:
            yield f"InstanceNorm2d {batch} {channels} {side}", nn.InstanceNorm2d(channels, affine=True), (batch, channels, side, side)


def results(module, value, weights, device, dtype):
    """Returns the outputs and the gradients of the input and of all parameters, as float64 on the CPU."""
    module = module.to(device, dtype)
    value = value.to(device, dtype).requires_grad_()
    outputs = module(value)
    output = outputs[0] if isinstance(outputs, tuple) else outputs
    if weights is None:
        weights = torch.randn(output.shape, dtype=torch.float64)
    gradients = torch.autograd.grad(output, [value, *module.parameters()], weights.to(device, dtype))
    return weights, [tensor.detach().cpu().double() for tensor in (output, *gradients)]


class SweepTest(unittest.TestCase):
    def check(self, cases):
        torch.manual_seed(0)
        for (name, module, sizes), dtype in itertools.product(cases, TYPES):
            with self.subTest(name, dtype=dtype):
                # all begin with numbers that the type has
                state = {key: entry.to(dtype).double() if entry.is_floating_point() else entry.clone() for key, entry in module.state_dict().items()}

                def run(device, precision, module=module, state=state, value=(torch.randn(sizes) + 0.5).to(dtype), weights=None):
                    module.to("cpu", torch.float64).load_state_dict(state)
                    return results(module, value, weights, device, precision)

                weights, exact = run("cpu", torch.float64)
                weights = weights.to(dtype).double()
                exact = run("cpu", torch.float64, weights=weights)[1]
                theirs, mine = (run(device, dtype, weights=weights)[1] for device in ("cpu", "xpud"))
                for number, (expected, cpu, ours) in enumerate(zip(exact, theirs, mine, strict=True)):
                    self.assertFalse(ours.isnan().any() and not cpu.isnan().any(), f"result {number} has NaN")
                    scale = expected.abs().max().item()
                    allowed = 4 * (cpu - expected).abs().max().item() + 8 * torch.finfo(dtype).eps * scale
                    self.assertLessEqual((ours - expected).abs().max().item(), allowed, f"result {number}, of up to {scale}")

    def test_recurrent_layers(self):
        self.check(recurrent())

    def test_normalisations(self):
        self.check(normalising())

    @unittest.skipUnless(FULL and "ONEDNN_MAX_CPU_ISA" not in os.environ, "with --full")
    def test_older_instruction_sets(self):
        for name in INSTRUCTION_SETS:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                env = os.environ | {"ONEDNN_MAX_CPU_ISA": name, "XDG_RUNTIME_DIR": folder, "XPUD_ADDRESS": ""}
                run = subprocess.run([sys.executable, "-m", "unittest", "test_sweep"], cwd=os.path.dirname(__file__), env=env, capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr[-4000:])


if __name__ == "__main__":
    unittest.main()
