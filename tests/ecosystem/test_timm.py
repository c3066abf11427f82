"""timm: models, losses, optimizers, mixing of samples, averaged weights."""

import unittest

import timm
import timm.data
import timm.loss
import timm.optim
import timm.utils
import torch
from PIL import Image
from program import FULL, ProgramTest, seed

MODELS = [("resnet10t", {}), ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 2})]
MORE_MODELS = [("convnext_atto", {}), ("efficientnet_b0", {}), ("mobilenetv3_small_050", {}), ("regnetx_002", {}), ("mixer_s32_224", {"img_size": 64}),
               ("swin_tiny_patch4_window7_224", {"img_size": 56}), ("deit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 2})]


class Images(torch.utils.data.Dataset):
    """Pictures of one colour; timm sets `transform`."""

    transform = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        picture = Image.new("RGB", (8, 8), (index * 60, 0, 255))
        return self.transform(picture), index


class TimmTest(ProgramTest):
    def test_training(self):
        for name, options in MODELS:
            def program(device):
                seed()
                model = timm.create_model(name, num_classes=5, **options).to(device)
                optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
                averaged = timm.utils.ModelEmaV3(model, decay=0.9)
                criterion, losses = timm.loss.LabelSmoothingCrossEntropy(0.1), []
                images, labels = torch.randn(4, 3, 32, 32).to(device), torch.tensor([0, 1, 2, 3], device=device)
                for _ in range(2):
                    loss = criterion(model(images), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    timm.utils.adaptive_clip_grad(model.parameters(), 0.1)
                    optimizer.step()
                    averaged.update(model)
                    losses.append(loss.detach())
                return torch.stack(losses), [p.float().norm() for p in averaged.module.parameters()]
            with self.subTest(name):
                self.check(program, 2e-2)

    def test_optimizers(self):
        for name in ("sgd", "lamb", "adamp", "lion", "adafactor", "rmsproptf", "lookahead_adamw", "muon"):
            def program(device):
                seed()
                model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
                optimizer = timm.optim.create_optimizer_v2(model, name, lr=1e-2, weight_decay=0.01)
                inputs = torch.randn(4, 8).to(device)
                for _ in range(3):
                    optimizer.zero_grad()
                    model(inputs).square().mean().backward()
                    optimizer.step()
                return list(model.parameters())
            with self.subTest(name):
                self.check(program, 5e-2 if name == "muon" else 1e-3)  # muon multiplies in bfloat16

    def test_mixing(self):
        def program(device):
            import numpy
            numpy.random.seed(0)
            seed()
            mix = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5)
            images, targets = mix(torch.randn(4, 3, 8, 8).to(device), torch.tensor([0, 1, 2, 3], device=device))
            return images, targets, timm.loss.SoftTargetCrossEntropy()(torch.ones(4, 5, device=device), targets)
        self.check(program)

    def test_a_loader_that_prefetches(self):
        def program(device):
            seed()
            loader = timm.data.create_loader(Images(), (3, 8, 8), 2, use_prefetcher=True, num_workers=1, device=torch.device(device), persistent_workers=False)
            batches = list(loader)
            self.assertEqual({batch.device.type for batch, _ in batches}, {device})
            return batches
        self.check(program)

    @unittest.skipUnless(FULL, "with XPUD_TEST_FULL")
    def test_more_models(self):
        for name, options in MORE_MODELS:
            def program(device):
                seed()
                model = timm.create_model(name, num_classes=5, **options).eval().to(device)
                with torch.no_grad():
                    size = options.get("img_size", 64)
                    return model(torch.randn(2, 3, size, size).to(device))
            with self.subTest(name):
                self.check(program, 1e-3)


if __name__ == "__main__":
    unittest.main()
