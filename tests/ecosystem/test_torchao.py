"""torchao: which quantized formats run on xpud."""

import copy
import unittest

import torch
import torchao.utils
from program import FULL, ProgramTest, seed
from torchao import quantization


def model():
    seed()
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).to(torch.bfloat16)


class QuantizationTest(ProgramTest):
    def quantize(self, config, fallbacks=(), tolerance=3e-2):
        def program(device):
            own = copy.deepcopy(model()).to(device)
            quantization.quantize_(own, config)
            seed()
            return own(torch.randn(4, 64, dtype=torch.bfloat16).to(device)).float()
        self.check(program, tolerance, fallbacks)

    def test_int8_weights(self):
        self.quantize(quantization.Int8WeightOnlyConfig())

    def test_int8_activations_and_weights(self):
        self.quantize(quantization.Int8DynamicActivationInt8WeightConfig())

    def test_other_weights_and_activations(self):
        for config in (quantization.Float8WeightOnlyConfig(), quantization.IntxWeightOnlyConfig(), quantization.Int8DynamicActivationIntxWeightConfig()):
            with self.subTest(type(config).__name__):
                self.quantize(config)

    def test_float8_activations_are_refused(self):
        """torchao asks for CUDA or XPU; so it does on the CPU."""
        for device in ("cpu", "xpud"):
            with self.assertRaisesRegex(AssertionError, "Float8 dynamic quantization requires CUDA compute capability"):
                quantization.quantize_(model().to(device), quantization.Float8DynamicActivationFloat8WeightConfig())

    def test_devices(self):
        self.assertEqual(torchao.utils.get_available_devices(), ["cpu", "xpud"])

    def test_training_aware_of_quantization(self):
        from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

        def program(device):
            own = model().float().to(device)
            quantization.quantize_(own, QATConfig(weight_config=IntxFakeQuantizeConfig(torch.int8, group_size=32), step="prepare"))
            seed()
            loss = own(torch.randn(4, 64).to(device)).square().mean()
            loss.backward()
            return loss, own[0].weight.grad
        self.check(program, 1e-3)

    @unittest.skipUnless(FULL, "with XPUD_TEST_FULL: it compiles the CPU's kernels")
    def test_optimizer_of_8_bits(self):
        from torchao.optim import AdamW8bit

        def program(device):
            seed()
            own = torch.nn.Linear(64, 128).to(device)
            optimizer = AdamW8bit(own.parameters(), lr=1e-2)
            for _ in range(2):
                own(torch.ones(2, 64, device=device)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            return own.weight
        self.check(program, 1e-2)


if __name__ == "__main__":
    unittest.main()
