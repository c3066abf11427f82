"""safetensors: files are read straight onto the device."""

import os
import tempfile
import unittest

import safetensors
import torch
from program import ProgramTest, seed
from safetensors.torch import load_file, load_model, save_file, save_model


class SafetensorsTest(ProgramTest):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = os.path.join(self._folder.name, "weights.safetensors")

    def weights(self):
        seed()
        return {"half": torch.randn(4, 6).half(), "weight": torch.randn(8, 3), "index": torch.arange(5), "brain": torch.randn(2, 2).bfloat16(),
                "flag": torch.tensor([True, False])}

    def test_files_are_saved_from_and_loaded_to_the_device(self):
        def program(device):
            save_file({name: value.to(device) for name, value in self.weights().items()}, self.path)
            loaded = load_file(self.path, device=device)
            self.assertEqual({value.device.type for value in loaded.values()}, {device})
            return loaded
        self.check(program, 0)

    def test_devices_by_name_index_and_number(self):
        save_file(self.weights(), self.path)
        for device in ("xpud", "xpud:0", 0, torch.device("xpud", 0)):
            with self.subTest(device=device):
                self.assertEqual(load_file(self.path, device=device)["weight"].device, torch.device("xpud:0"))

    def test_slices(self):
        def program(device):
            save_file(self.weights(), self.path, metadata={"format": "pt"})
            with safetensors.safe_open(self.path, framework="pt", device=device) as file:
                self.assertIsInstance(file, safetensors.safe_open)
                part = file.get_slice("weight")
                return sorted(file.keys()), file.metadata(), part.get_shape(), part[2:5, 1:], file.get_tensor("index")
        self.check(program, 0)

    def test_models_with_tied_weights(self):
        def program(device):
            seed()
            tied = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
            tied[1].weight = tied[0].weight
            save_model(tied.to(device), self.path)
            fresh = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
            fresh[1].weight = fresh[0].weight
            load_model(fresh.to(device), self.path, device=device)
            return dict(fresh.state_dict())
        self.check(program, 0)

    def test_a_missing_file_and_a_missing_name_are_errors(self):
        with self.assertRaises(FileNotFoundError):
            load_file(self.path, device="xpud")
        save_file(self.weights(), self.path)
        with safetensors.safe_open(self.path, "pt", device="xpud") as file, self.assertRaises(safetensors.SafetensorError):
            file.get_tensor("absent")


if __name__ == "__main__":
    unittest.main()
