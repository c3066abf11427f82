"""PyTorch on several devices of one daemon: CPU devices, which --test-devices makes."""

import json
import os
import unittest
import unittest.mock

from harness import DaemonTest, LightClient

# Trains the same model on every device at once, a thread for each. Says the losses.
TRAINING = """
import threading
def train(device, losses):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(32, 8, generator=generator).to(device).requires_grad_()
    x = torch.randn(64, 32, generator=generator).to(device)
    for _ in range(50):
        loss = ((x @ weights).softmax(1) - 0.125).square().mean()
        loss.backward()
        with torch.no_grad(): weights -= weights.grad
        weights.grad = None
    losses[device] = loss.item()
losses = {}
devices = [f"xpud:{i}" for i in range(torch.xpud.device_count())]
threads = [threading.Thread(target=train, args=(device, losses)) for device in devices]
for thread in threads: thread.start()
for thread in threads: thread.join()
say(len(losses), len(set(losses.values())))
"""


class Devices(DaemonTest):
    FLAGS = ("--device", "cpu", "--test-devices", "2")

    def test_xpuctl_lists_each_device(self):
        names = [device["name"] for device in self.daemon.devices()]
        self.assertEqual([name[-3:] for name in names], [" #0", " #1"])
        rows = self.daemon.ask("devices").splitlines()
        for name in names:
            self.assertEqual(sum(name in row for row in rows), 1, rows)

    def test_torch_computes_on_all_at_once(self):
        client = self.client(TRAINING)
        self.assertEqual(client.hear(), "2 1")
        first, second = self.daemon.status()["devices"]
        shared = first["kernel_shared_hits"] + second["kernel_shared_hits"]
        made = sum(device[count] for device in (first, second) for count in ("kernels_compiled", "kernel_disk_cache_hits"))
        self.assertGreater(made, 5)
        self.assertEqual(shared, made, "each kernel is made once and used by both devices")

    def test_a_tensor_moves_between_devices(self):
        client = self.client("a = torch.arange(12., device='xpud:0'); b = a.to('xpud:1') * 2\n"
                             "say(b.device, b.sum().item(), b.to('xpud:0').device)")
        self.assertEqual(client.hear(), "xpud:1 132.0 xpud:0")


class DevicesInProcesses(Devices):
    FLAGS = (*Devices.FLAGS, "--executor", "process")

    def test_each_device_has_an_executor_of_its_own(self):
        self.assertEqual(len({device["executor_pid"] for device in self.daemon.status()["devices"]}), 2)


class PciAddresses(DaemonTest):
    """Devices of which a driver says where they are on PCI: the first truly, the others with a domain beyond PCI's, a host bridge's, and an error."""

    FLAGS = ("--device", "cpu", "--test-devices", "4")
    ADDRESS = "0000:c7:1f.7"

    def setUp(self):
        with unittest.mock.patch.dict(os.environ, {"XPUD_CPU_PCI": f"{self.ADDRESS},10000:17:00.0,0000:00:00.0,none"}):
            super().setUp()

    def test_operators_see_what_is_an_address(self):
        for devices in (self.daemon.devices(), self.daemon.status()["devices"]):
            self.assertEqual([device.get("pci_address", "") for device in devices], [self.ADDRESS, "", "", ""])
        self.assertEqual(self.daemon.ask("status", "-o", "wide").count(self.ADDRESS), 1)
        header, *rows = self.daemon.ask("devices", "-o", "wide").splitlines()
        self.assertIn(" PCI ", header)
        self.assertEqual([self.ADDRESS in row for row in rows], [True, False, False, False])
        self.assertEqual(self.daemon.ask("query", "--query-gpu=pci.bus_id", "--format=csv,noheader").splitlines(),
                         ["00000000:C7:1F.7"] + ["[N/A]"] * 3)

    def test_programs_see_it(self):
        client = self.client("import json; say(json.dumps([device.pci_address for device in xpud.default_session().devices]))", LightClient)
        self.assertEqual(json.loads(client.hear()), [self.ADDRESS, "", "", ""])

    def test_torch_has_the_names_of_torch_cuda(self):
        client = self.client("""
known, unknown = (torch.xpud.get_device_properties(index) for index in (0, 1))
say(known.pci_domain_id, known.pci_bus_id, known.pci_device_id, hasattr(unknown, "pci_bus_id"))
""")
        self.assertEqual(client.hear(), f"0 {0xc7} {0x1f} False")


class PciAddressesOfExecutors(PciAddresses):
    FLAGS = (*PciAddresses.FLAGS, "--executor", "process")


class PciAddressesOfAnotherDriver(PciAddresses):
    """A driver without our extensions, which lists that of PCI."""

    def setUp(self):
        with unittest.mock.patch.dict(os.environ, {"XPUD_CPU_PLAIN": "1"}):
            super().setUp()


if __name__ == "__main__":
    unittest.main()
