"""Results whose size only the device knows: nonzero and what is made of it, beside the CPU, in every type and layout."""

import unittest

import torch

TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
LAYOUTS = {
    "plain": lambda x: x, "transposed": lambda x: x.transpose(0, -1), "cut": lambda x: x[1:, ::2], "expanded": lambda x: x[:1].expand(x.shape),
    "one dimension": lambda x: x.flatten(), "a row": lambda x: x[0, 0], "0-dim": lambda x: x[0, 0, 0], "empty": lambda x: x[:, :0],
    "eight dimensions": lambda x: x.reshape(1, 5, 1, 7, 2, 5, 3, 10).permute(7, 0, 3, 1, 2, 6, 5, 4),
}  # fmt: skip


class Nonzero(unittest.TestCase):
    def assert_same(self, actual, expected, what=""):
        self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape), what)
        if expected.numel() > 1:
            self.assertEqual(actual.stride(), expected.stride(), what)
        self.assertTrue(torch.equal(actual.cpu(), expected), what)

    def test_every_type_and_layout(self):
        torch.manual_seed(0)
        for dtype in TYPES:
            for density in (0.0, 0.02, 0.6, 1.0):
                whole = (torch.rand(5, 7, 300) < density).to(dtype) * (1 if dtype == torch.bool else 3)
                for name, layout in LAYOUTS.items():
                    x, mine = layout(whole.to(dtype)), layout(whole.to(dtype).to("xpud"))
                    with self.subTest(dtype=dtype, density=density, layout=name):
                        self.assert_same(mine.nonzero(), x.nonzero())

    def test_nothing_of_it_falls_back(self):
        x = torch.randn(40, 50)
        mask = x > 0.5
        on, on_mask = x.to("xpud"), mask.to("xpud")
        before = torch.xpud.fallback_counts()
        for name, operation in {
            "nonzero": lambda x, _: x.relu().nonzero(), "as_tuple": lambda _, mask: torch.stack(mask.nonzero(as_tuple=True)), "argwhere": lambda _, mask: mask.argwhere(),
            "masked_select": lambda x, mask: x.masked_select(mask), "of one row": lambda x, mask: x.masked_select(mask[0]), "x[mask]": lambda x, mask: x[mask],
            "x[row]": lambda x, mask: x[mask[:, 0]], "where": lambda _, mask: torch.stack(torch.where(mask)), "count_nonzero": lambda x, _: x.relu().count_nonzero(),
            "of dimensions": lambda _, mask: mask.count_nonzero((0, 1)), "of a dimension": lambda x, _: x.relu().count_nonzero(-1),
        }.items():  # fmt: skip
            with self.subTest(name):
                self.assert_same(operation(on, on_mask), operation(x, mask))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_numbers_that_are_nearly_zero(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            info = torch.finfo(dtype)
            x = torch.tensor([0.0, -0.0, info.smallest_normal, info.tiny / 2, -info.tiny / 2, float("nan"), float("inf"), -float("inf")], dtype=dtype)
            self.assert_same(x.to("xpud").nonzero(), x.nonzero(), dtype)

    def test_many_blocks(self):
        torch.manual_seed(0)
        for size in (1023, 1024, 1025, 3_000_001):
            x = torch.rand(size) < 0.3
            self.assert_same(x.to("xpud").nonzero(), x.nonzero(), size)
        x = torch.rand(1200, 1100) < 0.01
        self.assert_same(x.to("xpud").t().nonzero(), x.t().nonzero())

    def test_out(self):
        x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
        out = torch.empty(0, dtype=torch.long, device="xpud")
        self.assertIs(torch.nonzero(x.to("xpud"), out=out), out)
        self.assertTrue(torch.equal(out.cpu(), x.nonzero()))
        with self.assertRaisesRegex(RuntimeError, "dtype"):
            torch.nonzero(x.to("xpud"), out=torch.empty(0, device="xpud"))

    def test_what_the_wire_lacks_falls_back(self):
        x = torch.tensor([1j, 0, 2])
        self.assert_same(x.to("xpud").nonzero(), x.nonzero())
        x = torch.ones([1] * 9)
        self.assert_same(x.to("xpud").nonzero(), x.nonzero())

    def test_compiled(self):
        torch._dynamo.config.capture_dynamic_output_shape_ops = True
        self.addCleanup(setattr, torch._dynamo.config, "capture_dynamic_output_shape_ops", False)
        compiled = torch.compile(lambda x: x.nonzero() * 2)
        for size in (5, 9):
            x = torch.arange(size * 3).reshape(size, 3) % 4
            self.assertTrue(torch.equal(compiled(x.to("xpud")).cpu(), x.nonzero() * 2))

    def test_gradients_of_selected_elements(self):
        torch.manual_seed(0)
        x, mask = torch.randn(6, 7), torch.rand(6, 7) > 0.5
        gradients = []
        for device in ("cpu", "xpud"):
            leaf = x.to(device).detach().requires_grad_()
            (leaf[mask.to(device)] ** 2).sum().backward()
            gradients.append(leaf.grad.cpu())
        torch.testing.assert_close(*gradients)


if __name__ == "__main__":
    unittest.main()
