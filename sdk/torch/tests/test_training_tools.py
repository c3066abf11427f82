"""What training programs use around a model: functions with autocast, gradient scaling, pinned batches, checkpointing, settings of torch.backends."""

import io
import unittest
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Square(torch.autograd.Function):
    """Computes in float32, with autocast off inside; records what it saw."""

    seen = []

    @staticmethod
    @torch.amp.custom_fwd(device_type="xpud", cast_inputs=torch.float32)
    def forward(ctx, value):
        ctx.save_for_backward(value)
        Square.seen.append((value.dtype, torch.is_autocast_enabled("xpud")))
        return value * value

    @staticmethod
    @torch.amp.custom_bwd(device_type="xpud")
    def backward(ctx, gradient):
        value, = ctx.saved_tensors
        Square.seen.append((gradient.dtype, torch.is_autocast_enabled("xpud")))
        return 2 * value * gradient


class MixedPrecisionTest(unittest.TestCase):
    def test_custom_functions_under_autocast(self):
        Square.seen.clear()
        value = torch.full((3,), 2.0, device="xpud", dtype=torch.bfloat16, requires_grad=True)
        with torch.autocast("xpud", torch.bfloat16):
            result = Square.apply(value)
        result.sum().backward()
        self.assertEqual(Square.seen, [(torch.float32, False), (torch.float32, False)])
        self.assertEqual((result.dtype, value.grad.tolist()), (torch.float32, [4, 4, 4]))

    def test_custom_functions_keep_autocast_without_cast_inputs(self):
        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="xpud")
            def forward(ctx, left, right):
                ctx.save_for_backward(left, right)
                return left @ right

            @staticmethod
            @torch.amp.custom_bwd(device_type="xpud")
            def backward(ctx, gradient):
                left, right = ctx.saved_tensors
                return gradient @ right.T, left.T @ gradient

        left, right = (torch.ones(2, 2, device="xpud", requires_grad=True) for _ in range(2))
        with torch.autocast("xpud", torch.float16):
            result = Product.apply(left, right)
        self.assertEqual(result.dtype, torch.float16)
        result.sum().backward()
        self.assertEqual(left.grad.dtype, torch.float32)

    def test_supported_dtypes(self):
        self.assertEqual(torch.xpud.get_amp_supported_dtype(), [torch.float16, torch.bfloat16])
        self.assertTrue(torch.amp.is_autocast_available("xpud"))
        with self.assertWarnsRegex(UserWarning, "xpud"), torch.autocast("xpud", torch.float64):
            self.assertFalse(torch.is_autocast_enabled("xpud"))

    def test_the_state_of_a_gradient_scaler(self):
        def step(scaler, value):
            model = nn.Linear(2, 1).to("xpud")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scaler.scale(model(torch.full((1, 2), value, device="xpud")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        scaler = torch.amp.GradScaler("xpud", init_scale=1024.0, growth_interval=2)
        step(scaler, 1.0)
        saved = io.BytesIO()
        torch.save(scaler.state_dict(), saved)
        step(scaler, 1.0)
        self.assertEqual(scaler.get_scale(), 2048.0)
        other = torch.amp.GradScaler("xpud", growth_interval=2)
        saved.seek(0)
        other.load_state_dict(torch.load(saved))
        self.assertEqual((other.get_scale(), other.state_dict()["_growth_tracker"]), (1024.0, 1))
        step(other, 1.0)
        self.assertEqual(other.get_scale(), 2048.0)
        step(other, float("inf"))
        self.assertEqual(other.get_scale(), 1024.0)


class BatchesTest(unittest.TestCase):
    def test_pinned_batches(self):
        data = TensorDataset(torch.arange(6.0).view(6, 1))
        for options in ({}, {"num_workers": 1}, {"pin_memory_device": "xpud"}):
            with self.subTest(options), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pin_memory_device is deprecated
                batches = [batch for batch, in DataLoader(data, batch_size=3, pin_memory=True, **options)]
                self.assertTrue(all(batch.is_pinned() for batch in batches))
                self.assertEqual(torch.cat([batch.to("xpud", non_blocking=True) for batch in batches]).flatten().tolist(), list(range(6)))


class CheckpointTest(unittest.TestCase):
    def test_the_same_elements_are_dropped_again(self):
        dropout = nn.Dropout(0.5)
        for reentrant in (True, False):
            value = torch.ones(1000, device="xpud", requires_grad=True)
            result = checkpoint(lambda x: dropout(x) * 2, value, use_reentrant=reentrant)
            torch.rand(10, device="xpud")  # moves the generator on
            result.sum().backward()
            self.assertTrue(torch.equal(value.grad, result.detach()), reentrant)
            self.assertIn(0.0, result.tolist())

    def test_the_generator_is_as_without_checkpointing(self):
        drawn = []
        for use in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
            torch.manual_seed(3)
            value = torch.ones(10, device="xpud", requires_grad=True)
            use(nn.Dropout(0.5), value).sum().backward()
            drawn.append(torch.rand(3, device="xpud").tolist())
        self.assertEqual(*drawn)

    def test_fork_rng(self):
        torch.manual_seed(0)
        with torch.random.fork_rng(device_type="xpud"):
            inside = torch.rand(3, device="xpud")
        self.assertTrue(torch.equal(inside, torch.rand(3, device="xpud")))


class SettingsTest(unittest.TestCase):
    def test_settings_of_other_devices_can_be_made(self):
        """Programs set them unconditionally; on xpud they have no effect."""
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark
        try:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
            self.assertEqual((torch.ones(2, 2, device="xpud") @ torch.ones(2, 2, device="xpud")).tolist(), [[2, 2], [2, 2]])
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark = before

    def test_the_choice_of_attention_kernels(self):
        query = torch.ones(1, 1, 4, 8, device="xpud")
        for backend in (torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.OVERRIDEABLE):
            with torch.nn.attention.sdpa_kernel(backend):
                self.assertEqual(nn.functional.scaled_dot_product_attention(query, query, query).sum().item(), 32)

    def test_default_device(self):
        torch.set_default_device("xpud")
        try:
            self.assertEqual({p.device.type for p in nn.Linear(2, 2).parameters()}, {"xpud"})
        finally:
            torch.set_default_device(None)


if __name__ == "__main__":
    unittest.main()
