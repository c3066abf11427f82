"""Lightning: Trainer and Fabric choose xpud, train on it in each precision, and refuse what needs collectives."""

import logging
import tempfile
import unittest
import warnings

import lightning
import torch
from program import ProgramTest, seed
from torch.utils.data import DataLoader, TensorDataset

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers.*")


def data():
    seed()
    inputs = torch.randn(32, 8)
    return DataLoader(TensorDataset(inputs, inputs[:, :3].argmax(1)), batch_size=8)


class Classifier(lightning.LightningModule):
    def __init__(self, dropout=0.0):
        super().__init__()
        seed()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(dropout), torch.nn.Linear(16, 3))
        self.losses = []

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs), labels)
        self.losses.append(loss.detach().float().cpu())
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def trainer(device, **options):
    options = dict(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False) | options
    return lightning.Trainer(accelerator="cpu" if device == "cpu" else "auto", **options)


class TrainerTest(ProgramTest):
    def test_each_way_to_ask_for_the_device(self):
        from lightning.pytorch.accelerators import XpudAccelerator
        for accelerator in ("auto", "gpu", "xpud", XpudAccelerator()):
            with self.subTest(accelerator=accelerator):
                own = lightning.Trainer(accelerator=accelerator, devices=1, precision="bf16-mixed", logger=False, enable_checkpointing=False)
                self.assertEqual(own.strategy.root_device, torch.device("xpud:0"))
                self.assertEqual(own.precision_plugin.device, "xpud")

    def test_ddp_with_one_device(self):
        def program(device):
            model = Classifier()
            own = trainer(device, devices=1, strategy="ddp")
            own.fit(model, data(), data())
            torch.distributed.destroy_process_group()
            return model.losses, [parameter.detach().cpu() for parameter in model.parameters()]
        self.check(program)

    def test_losses(self):
        def program(device):
            model = Classifier()
            own = trainer(device, gradient_clip_val=1.0, accumulate_grad_batches=2)
            own.fit(model, data(), data())
            self.assertEqual(own.strategy.root_device.type, device)
            return model.losses, own.validate(model, data(), verbose=False), list(model.parameters())
        self.check(program)

    def test_bfloat16(self):
        def program(device):
            model = Classifier()
            trainer(device, precision="bf16-mixed").fit(model, data())
            return model.losses
        self.check(program, 5e-2)

    def test_float16_scales_gradients(self):
        model, own = Classifier(), trainer("xpud", precision="16-mixed", max_epochs=4)
        own.fit(model, data())
        self.assertTrue(own.precision_plugin.scaler.is_enabled())
        self.assertLess(model.losses[-1], model.losses[0])

    def test_a_checkpoint_continues(self):
        with tempfile.TemporaryDirectory() as folder:
            model, own = Classifier(), trainer("xpud", max_epochs=1)
            own.fit(model, data())
            own.save_checkpoint(f"{folder}/one.ckpt")
            whole = Classifier()
            trainer("xpud", max_epochs=2).fit(whole, data())
            rest = Classifier()
            trainer("xpud", max_epochs=2).fit(rest, data(), ckpt_path=f"{folder}/one.ckpt", weights_only=False)
        torch.testing.assert_close(torch.stack(whole.losses[-4:]), torch.stack(rest.losses), rtol=1e-5, atol=1e-5)

    def test_the_package_of_the_older_name(self):
        import pytorch_lightning
        self.assertEqual(pytorch_lightning.Trainer(accelerator="gpu", devices=1, logger=False, enable_checkpointing=False).strategy.root_device, torch.device("xpud:0"))

    def test_more_devices_than_there_are_are_refused(self):
        with self.assertRaisesRegex(ValueError, "there are 1"):
            lightning.Trainer(accelerator="xpud", devices=2, logger=False)


class FabricTest(ProgramTest):
    def test_losses(self):
        def program(device):
            fabric = lightning.Fabric(accelerator="cpu" if device == "cpu" else "auto", devices=1)
            self.assertEqual(fabric.device.type, device)
            model = Classifier()
            net, optimizer = fabric.setup(model.net, torch.optim.SGD(model.parameters(), lr=0.1))
            losses = []
            for inputs, labels in fabric.setup_dataloaders(data()):
                loss = torch.nn.functional.cross_entropy(net(inputs), labels)
                fabric.backward(loss)
                fabric.clip_gradients(net, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            return losses
        self.check(program)

    def test_precision(self):
        fabric = lightning.Fabric(accelerator="gpu", devices=1, precision="16-mixed")
        self.assertEqual(fabric._precision.device, "xpud")
        with fabric.autocast():
            self.assertEqual((torch.ones(2, 2, device="xpud") @ torch.ones(2, 2, device="xpud")).dtype, torch.float16)

    def test_random_states(self):
        from lightning.fabric.utilities.seed import _collect_rng_states, _set_rng_states
        states = _collect_rng_states()
        first = torch.rand(4, device="xpud")
        _set_rng_states(states)
        self.assertTrue(torch.equal(first, torch.rand(4, device="xpud")))


if __name__ == "__main__":
    unittest.main()
