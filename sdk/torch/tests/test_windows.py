"""Pooling, padding, interpolation, folding and grid sampling, forward and backward, beside the CPU: types, layouts, errors, and no fallbacks."""

import itertools
import unittest

import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# PyTorch's CPU adds up 16-bit gradients in 16 bits.
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-10, torch.float16: 3e-2, torch.bfloat16: 2e-1}
LINE, IMAGE, VOLUME = (2, 9, 21), (2, 9, 13, 21), (2, 5, 6, 7, 9)


def layouts(x):
    """Yields names, and `x` in several layouts."""
    yield "plain", x
    if x.dim() > 3:
        yield "channels last", x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    yield "transposed", x.transpose(-1, -2).contiguous().transpose(-1, -2)
    yield "expanded", x[:1].expand(x.shape)
    yield "without a batch", x[0]


POOLS = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), LINE),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), IMAGE),
    "max_pool2d, dilated": (lambda x: F.max_pool2d(x, (3, 2), (1, 3), (1, 1), (2, 1), True, return_indices=True), IMAGE),
    "max_pool3d": (lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True, return_indices=True), VOLUME),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 5, return_indices=True), LINE),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (5, 30), return_indices=True), IMAGE),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (3, 4, 2), return_indices=True), VOLUME),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), LINE),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), IMAGE),
    "avg_pool2d without padding": (lambda x: F.avg_pool2d(x, (3, 2), (1, 3), (1, 1), True, False), IMAGE),
    "avg_pool2d by 5": (lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=5), IMAGE),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 3, 2, 1, True, False), VOLUME),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 5), LINE),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (5, 30)), IMAGE),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (3, 4, 2)), VOLUME),
    "global average": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
}
PADS = {
    f"{mode} {pads}": (lambda x, mode=mode, pads=pads: F.pad(x, pads, mode), shape)
    for mode in ("reflect", "replicate", "circular")
    for pads, shape in (((3, 5), LINE), ((3, 5, 0, 2), IMAGE), ((2, 1, 0, 2, 1, 1), VOLUME), ((-2, 4, 1, -1), IMAGE), ((-21, 9), LINE))
    if mode == "replicate" or min(pads) > -21
}
SIZES = {
    f"{mode} to {size}": (lambda x, mode=mode, size=size, options=options: F.interpolate(x, size, mode=mode, **options), shape)
    for modes, sizes, shape in ((("nearest", "nearest-exact", "linear"), ((42,), (8,)), LINE), (("nearest", "nearest-exact", "bilinear", "bicubic"), ((26, 42), (7, 9), (13, 50)), IMAGE),
                                (("nearest", "nearest-exact", "trilinear"), ((12, 14, 18), (3, 9, 5)), VOLUME))
    for mode in modes for size in sizes for options in ({},)
}  # fmt: skip
SCALES = {
    f"{mode} by {scale}, {options}": (lambda x, mode=mode, scale=scale, options=options: F.interpolate(x, scale_factor=scale, mode=mode, **options), IMAGE)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    for scale in (2, 0.5, 1.7, 2.1)
    for options in (({},) if mode.startswith("nearest") else ({"align_corners": False}, {"align_corners": True}, {"recompute_scale_factor": True}))
}
FOLDS = {
    "unfold": (lambda x: F.unfold(x, (3, 2), padding=1, stride=(1, 2)), (2, 5, 9, 13)),
    "unfold, dilated": (lambda x: F.unfold(x, 3, dilation=(2, 3), padding=(0, 4)), (2, 5, 9, 13)),
    "unfold patches": (lambda x: F.unfold(x, (4, 3), stride=(4, 3)), (2, 3, 8, 9)),
    "fold": (lambda x: F.fold(x, (6, 9), (2, 3), padding=(0, 1)), (2, 18, 45)),
    "fold, dilated": (lambda x: F.fold(x, (9, 14), (3, 2), dilation=2, padding=(1, 0), stride=(1, 2)), (2, 18, 42)),
    "fold patches": (lambda x: F.fold(x, (8, 9), (4, 3), stride=(4, 3)), (2, 24, 6)),
}
AREAS = {
    f"{mode} antialiased to {size}": (lambda x, mode=mode, size=size, align=align: F.interpolate(x, size, mode=mode, antialias=True, align_corners=align), IMAGE)
    for mode in ("bilinear", "bicubic") for size in ((5, 8), (40, 30), (7, 60)) for align in (False, True)
}  # fmt: skip
ALL = {**POOLS, **PADS, **SIZES, **SCALES, **AREAS}


class Windows(unittest.TestCase):
    def assert_same(self, actual, expected):
        tolerance = TOLERANCES.get(expected.dtype, 0)
        if expected.numel() > 1:
            self.assertEqual(actual.stride(), expected.stride())
        torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)

    def compare(self, operation, x):
        """Compares results and gradients. `x` is on the CPU."""
        expected, actual = operation(x), operation(x.to("xpud"))
        for mine, its in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, expected)), strict=True):
            self.assert_same(mine, its)
        if not x.is_floating_point():
            return
        first = expected[0] if isinstance(expected, tuple) else expected
        weights = torch.randn(first.shape).to(x.dtype)
        gradients = []
        for device in ("cpu", "xpud"):
            leaf = x.detach().to(device).requires_grad_()
            result = operation(leaf)
            gradients += torch.autograd.grad(result[0] if isinstance(result, tuple) else result, leaf, weights.to(device))
        self.assert_same(gradients[1], gradients[0])

    def test_every_layout(self):
        torch.manual_seed(0)
        for name, (operation, shape) in ALL.items():
            for layout, x in layouts(torch.randn(shape)):
                if layout == "without a batch" and name not in POOLS and name not in PADS:
                    continue
                with self.subTest(name, layout=layout):
                    self.compare(operation, x)

    def test_every_floating_type(self):
        torch.manual_seed(0)
        for name, (operation, shape) in ALL.items():
            for dtype in FLOATS[1:]:
                if dtype.itemsize == 2 and (name == "avg_pool3d" or name in AREAS):  # the CPU has no kernel
                    continue
                for layout, x in list(layouts(torch.randn(shape).to(dtype)))[:2]:
                    with self.subTest(name, dtype=dtype, layout=layout):
                        self.compare(operation, x)

    def test_bytes_are_interpolated_as_on_the_cpu(self):
        before = torch.xpud.fallback_counts()
        sizes = ((13, 17), (7, 9), (50, 17), (20, 62))
        for mode, antialias, corners, size, channels in itertools.product(("bilinear", "bicubic"), (False, True), (False, True), sizes, (3, 5)):
            x = torch.randint(0, 256, (2, channels, 13, 17), dtype=torch.uint8)
            for x in (x, x.to(memory_format=torch.channels_last), x[:, :, ::2]):
                with self.subTest(mode=mode, antialias=antialias, corners=corners, size=size, channels=channels, stride=x.stride()):
                    options = {"mode": mode, "antialias": antialias, "align_corners": corners}
                    actual, expected = F.interpolate(x.xpud(), size, **options), F.interpolate(x, size, **options)
                    self.assertTrue(torch.equal(actual.cpu(), expected))
                    self.assertEqual(actual.stride(), expected.stride())
        x = torch.randint(0, 256, (1, 3, 40, 31), dtype=torch.uint8)
        for factor in (0.37, 1.9, (2.5, 0.2)):
            options = {"scale_factor": factor, "mode": "bicubic", "antialias": True}
            self.assertTrue(torch.equal(F.interpolate(x.xpud(), **options).cpu(), F.interpolate(x, **options)))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_integers(self):
        torch.manual_seed(0)
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
            x = torch.randint(0, 100, IMAGE, dtype=dtype)
            self.compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
            self.compare(lambda x: F.pad(x, (3, 5, 0, 2), "reflect"), x)
            self.compare(lambda x: F.pad(x, (3, 5, 0, 2), "replicate"), x)
        self.compare(lambda x: F.interpolate(x, scale_factor=2), torch.randint(0, 100, IMAGE, dtype=torch.uint8))

    def test_nothing_falls_back(self):
        before = torch.xpud.fallback_counts()
        for operation, shape in ALL.values():
            leaf = torch.randn(shape, device="xpud", requires_grad=True)
            result = operation(leaf)
            (result[0] if isinstance(result, tuple) else result).sum().backward()
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_folds(self):
        torch.manual_seed(0)
        before = torch.xpud.fallback_counts()
        for name, (operation, shape) in FOLDS.items():
            for dtype in FLOATS:
                for layout, x in [*layouts(torch.randn(shape).to(dtype)), ("empty", torch.randn((0,) + shape[1:]).to(dtype))]:
                    with self.subTest(name, dtype=dtype, layout=layout):
                        self.compare(operation, x)
            x = torch.randn(shape) > 0
            self.assertTrue(torch.equal(operation(x.to("xpud")).cpu(), operation(x)))
            torch.autograd.gradcheck(operation, torch.randn(1, *shape[1:], dtype=torch.float64, device="xpud", requires_grad=True))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_gradients_by_differences(self):
        torch.manual_seed(0)
        for name, (operation, shape) in ALL.items():
            if "max" in name or shape == VOLUME or "2.1" in name or "-21" in name:
                continue
            x = torch.randn((1, 2) + tuple(min(s, 7) for s in shape[2:]), dtype=torch.float64, device="xpud", requires_grad=True)
            with self.subTest(name):
                torch.autograd.gradcheck(operation, x)

    def test_infinities_and_nan(self):
        torch.manual_seed(0)
        x = torch.randn(IMAGE)
        x[torch.rand(IMAGE) < 0.1] = float("nan")
        x[torch.rand(IMAGE) < 0.3] = -float("inf")
        for x in (x, torch.full(IMAGE, -float("inf"))):
            for layout, y in layouts(x):
                for name in ("max_pool2d", "max_pool2d, dilated", "adaptive_max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "reflect (3, 5, 0, 2)", "nearest by 2, {}"):
                    operation = ALL[name][0]
                    with self.subTest(name, layout=layout):
                        expected, actual = operation(y), operation(y.to("xpud"))
                        for mine, its in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, expected)), strict=True):
                            self.assert_same(mine, its)

    def test_empty_batches(self):
        for name, (operation, shape) in ALL.items():
            x = torch.randn((0,) + shape[1:])
            with self.subTest(name):
                try:
                    expected = operation(x)
                except RuntimeError as error:
                    with self.assertRaisesRegex(RuntimeError, "."):
                        operation(x.to("xpud"))
                    self.assertTrue(str(error))
                    continue
                self.compare(operation, x)
                first = expected[0] if isinstance(expected, tuple) else expected
                self.assertEqual(first.numel(), 0)

    def test_errors_are_those_of_the_cpu(self):
        wrong = {
            "padding": lambda x: F.max_pool2d(x, 2, 2, 2), "stride": lambda x: F.avg_pool2d(x, 2, 0), "kernel": lambda x: F.max_pool2d(x, 50),
            "3-dim kernel": lambda x: F.max_pool3d(x, 50), "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=0), "reflect": lambda x: F.pad(x, (30, 0, 0, 0), "reflect"),
            "negative": lambda x: F.pad(x, (-30, 0, 0, 0), "replicate"), "size": lambda x: F.interpolate(x, (0, 3)), "dimensions": lambda x: torch.ops.aten.upsample_bilinear2d(x[0], [4, 4], False),
            "adaptive": lambda x: torch.ops.aten._adaptive_avg_pool2d(x, [3]), "empty": lambda x: F.adaptive_max_pool2d(x[:, :, :0], 3),
            "grid": lambda x: F.grid_sample(x, torch.zeros(2, 3, 3, 3, device=x.device)), "batch": lambda x: F.grid_sample(x, torch.zeros(3, 3, 3, 2, device=x.device)),
            "gradient": lambda x: torch.ops.aten.avg_pool2d_backward(x, x, [2, 2], [2, 2], [0, 0], False, True, None),
            "unfold": lambda x: F.unfold(x, 40), "unfold's stride": lambda x: F.unfold(x, 2, stride=0), "unfold's lists": lambda x: torch.ops.aten.im2col(x, [2], [1, 1], [0, 0], [1, 1]),
            "unfold's dimensions": lambda x: F.unfold(x[0, 0], 2), "fold": lambda x: F.fold(x[0], (9, 9), 2), "fold's columns": lambda x: F.fold(x[:, :, 0], (9, 9), 2),
            "fold's lists": lambda x: torch.ops.aten.col2im(x[0], [9], [2, 2], [1, 1], [0, 0], [1, 1]), "integers": lambda x: F.unfold(x.long(), 2),
            "gradient of padding": lambda x: torch.ops.aten.replication_pad2d_backward(x, x, [1, 1, 1, 1]),
        }  # fmt: skip
        x = torch.randn(IMAGE)
        for name, operation in wrong.items():
            with self.subTest(name):
                with self.assertRaises(Exception) as expected:
                    operation(x)
                with self.assertRaises(type(expected.exception)) as actual:
                    operation(x.to("xpud"))
                self.assertEqual(str(actual.exception).splitlines()[0], str(expected.exception).splitlines()[0])

    def test_out(self):
        x = torch.randn(IMAGE)
        for name, operation in {
            "avg_pool2d": lambda x, out: torch._C._nn.avg_pool2d(x, 2, out=out), "upsample": lambda x, out: torch._C._nn.upsample_bilinear2d(x, (20, 30), False, out=out),
            "reflect": lambda x, out: torch.ops.aten.reflection_pad2d.out(x, [1, 2, 3, 4], out=out),
        }.items():  # fmt: skip
            with self.subTest(name):
                expected = operation(x, torch.empty(0))
                out = torch.empty(0, device="xpud")
                self.assertIs(operation(x.to("xpud"), out), out)
                self.assert_same(out, expected)

    def test_max_unpool(self):
        torch.manual_seed(0)
        for dtype in FLOATS:
            for pool, unpool, shape in ((F.max_pool1d, F.max_unpool1d, (2, 3, 8)), (F.max_pool2d, F.max_unpool2d, (2, 3, 8, 6)), (F.max_pool3d, F.max_unpool3d, (2, 3, 4, 6, 4))):
                values, indices = pool(torch.randn(shape), 2, return_indices=True)
                for layout, x in list(layouts(values.to(dtype)))[:3]:
                    with self.subTest(dtype=dtype, shape=shape, layout=layout):
                        self.compare(lambda x: unpool(x, indices.to(x.device), 2), x)
        x = torch.ones(1, 1, 2, 2, device="xpud")
        F.max_unpool2d(x, torch.full((1, 1, 2, 2), 16, device="xpud"), 2)
        with self.assertRaises(IndexError):
            torch.xpud.synchronize()

    def test_grid_sample(self):
        torch.manual_seed(0)
        for shape, grid_shape in ((IMAGE, (2, 11, 17, 2)), (VOLUME, (2, 4, 5, 10, 3))):
            for dtype in (torch.float32, torch.float64):
                grid = (torch.randn(grid_shape) * 1.1).to(dtype)
                for mode in ("bilinear", "nearest", "bicubic")[: 7 - len(shape) if len(shape) == 5 else 3]:
                    for padding in ("zeros", "border", "reflection"):
                        for align in (False, True):
                            with self.subTest(shape=shape, dtype=dtype, mode=mode, padding=padding, align=align):
                                self.compare_grids(torch.randn(shape, dtype=dtype), grid, mode=mode, padding_mode=padding, align_corners=align)

    def compare_grids(self, x, grid, **options):
        results = []
        for device in ("cpu", "xpud"):
            leaves = [t.to(device).detach().requires_grad_() for t in (x, grid)]
            result = F.grid_sample(*leaves, **options)
            results.append([result, *torch.autograd.grad(result, leaves, torch.ones_like(result))])
        tolerance = 1e-9 if x.dtype == torch.float64 else 2e-3
        for actual, expected in zip(*reversed(results), strict=True):
            self.assertEqual(actual.stride(), expected.stride())
            torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)

    def test_grids_of_no_numbers(self):
        values = [float("nan"), float("inf"), -float("inf"), 1e30, 0.5]
        grid = torch.tensor([[a, b] for a in values for b in values]).view(1, 1, -1, 2)
        plane, volume = torch.randn(1, 3, 5, 6), torch.randn(1, 3, 4, 5, 6)
        deep = torch.cat([grid, torch.zeros_like(grid[..., :1])], -1).unsqueeze(1)
        for mode in ("bilinear", "nearest"):
            for padding in ("zeros", "border"):
                for x, where in ((plane, grid), (volume, deep)):
                    expected = F.grid_sample(x, where, mode, padding, False)
                    actual = F.grid_sample(x.to("xpud"), where.to("xpud"), mode, padding, False)
                    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)

    def test_no_gradient_of_the_grid(self):
        x = torch.randn(IMAGE, device="xpud", requires_grad=True)
        grid = torch.rand(2, 4, 5, 2, device="xpud")
        F.grid_sample(x, grid, align_corners=False).sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        self.assertIsNone(grid.grad)

    def test_compiled_layouts(self):
        """Graphs expect the strides that fake tensors have."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        for name, (operation, shape) in ALL.items():
            for layout, x in layouts(torch.randn(shape)):
                if layout == "without a batch" and name not in POOLS and name not in PADS:
                    continue
                if layout == "channels last" and name in PADS and shape == VOLUME and "circular" not in name:
                    continue  # a fake tensor is contiguous, unlike the CPU's result
                with self.subTest(name, layout=layout):
                    x = x.to("xpud")
                    actual = operation(x)
                    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                        fake = operation(mode.from_tensor(x))
                    for mine, its in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, fake)), strict=True):
                        self.assertEqual((mine.shape, mine.stride(), mine.dtype), (its.shape, its.stride(), its.dtype))


if __name__ == "__main__":
    unittest.main()
