"""accelerate: training loops with its own choice of device, mixed precision, saved states, and models that are spread over devices."""

import os
import subprocess
import sys
import tempfile
import unittest

import accelerate
import torch
from accelerate.state import AcceleratorState
from program import ProgramTest, seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accelerator(device, **options):
    AcceleratorState._reset_state(reset_partial_state=True)  # a process chooses its device once
    return accelerate.Accelerator(cpu=device == "cpu", **options)


def model():
    seed()
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.0), nn.Linear(32, 4))


def loader():
    seed()
    inputs = torch.randn(48, 16)
    return DataLoader(TensorDataset(inputs, inputs[:, :4].argmax(1)), batch_size=8)


def train(own, net, epochs=2, **options):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    net, optimizer, data, schedule = own.prepare(net, optimizer, loader(), schedule)
    losses = []
    for _ in range(epochs):
        for inputs, labels in data:
            with own.accumulate(net):
                loss = nn.functional.cross_entropy(net(inputs), labels)
                own.backward(loss)
                own.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return net, optimizer, losses


class AcceleratorTest(ProgramTest):
    def test_the_default_device_is_xpud(self):
        AcceleratorState._reset_state(reset_partial_state=True)
        self.assertEqual(accelerate.Accelerator().device.type, "xpud")
        AcceleratorState._reset_state(reset_partial_state=True)
        self.assertEqual(accelerate.PartialState().device.type, "xpud")

    def test_losses(self):
        def program(device):
            own = accelerator(device, gradient_accumulation_steps=2)
            net, _, losses = train(own, model())
            predictions = [own.gather_for_metrics((net(inputs), labels)) for inputs, labels in own.prepare(loader())]
            return losses, predictions
        self.check(program)

    def test_bfloat16(self):
        self.check(lambda device: train(accelerator(device, mixed_precision="bf16"), model())[2], 5e-2)

    def test_float16_scales_gradients(self):
        own = accelerator("xpud", mixed_precision="fp16")
        _, _, losses = train(own, model(), epochs=4)
        self.assertTrue(own.scaler.is_enabled())
        self.assertLess(losses[-1], losses[0])

    def test_a_saved_state_continues_with_the_same_random_numbers(self):
        own = accelerator("xpud", mixed_precision="fp16")
        net, optimizer, _ = train(own, nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 4)))
        with tempfile.TemporaryDirectory() as folder:
            own.save_state(folder)
            scale = own.scaler.get_scale()
            inputs = torch.ones(8, 16, device=own.device)
            first = net(inputs)
            own.scaler.update(2.0)
            own.load_state(folder)
        self.assertTrue(torch.equal(first, net(inputs)))
        self.assertEqual(own.scaler.get_scale(), scale)

    def test_several_processes_are_refused(self):
        program = "import accelerate; accelerate.Accelerator()"
        environment = os.environ | {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("xpud has no collectives between processes yet", done.stderr)


class BigModelTest(ProgramTest):
    def run_model(self, place):
        def program(device):
            inputs = torch.ones(2, 16)
            return place(model(), device)(inputs.to(device))
        self.check(program)

    def test_memory_of_devices(self):
        memory = accelerate.utils.get_max_memory()
        self.assertEqual(list(memory), [0, "cpu"])
        self.assertGreater(memory[0], 0)

    def test_dispatch(self):
        def place(net, device):
            return accelerate.dispatch_model(net, {"0": device, "1": device, "2": "cpu", "3": device, "4": device}, main_device=device)
        self.run_model(place)

    def test_offload(self):
        self.run_model(lambda net, device: accelerate.cpu_offload(net, torch.device(device)))

    def test_disk_offload(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_model(lambda net, device: accelerate.disk_offload(net, os.path.join(folder, device), torch.device(device)))

    def test_load_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            accelerate.Accelerator().save_model(model(), folder)

            def place(net, device):
                with accelerate.init_empty_weights():
                    empty = model()
                return accelerate.load_checkpoint_and_dispatch(empty, folder, device_map={"": device})
            self.run_model(place)


if __name__ == "__main__":
    unittest.main()
