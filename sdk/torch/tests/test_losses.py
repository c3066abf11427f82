"""Losses and activations beside the CPU, with gradients, in every floating type and reduction; nothing by fallback."""

import unittest

import torch
import torch.nn.functional as F

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ACTIVATIONS = {
    "hardtanh": F.hardtanh, "relu6": F.relu6, "elu": lambda x: F.elu(x, 0.7), "selu": F.selu, "celu": lambda x: F.celu(x, 1.3), "logsigmoid": F.logsigmoid,
    "hardshrink": F.hardshrink, "softshrink": F.softshrink, "threshold": lambda x: F.threshold(x, 0.1, 3.0), "mish": F.mish, "glu": F.glu, "hardswish": F.hardswish,
    "glu of another dimension": lambda x: F.glu(x, 1), "prelu": lambda x: F.prelu(x, torch.full((6,), 0.2, dtype=x.dtype, device=x.device)), "frac": torch.frac,
    "logit": lambda x: x.sigmoid().logit(), "logit with eps": lambda x: x.sigmoid().logit(0.3),
    "in place": lambda x: F.elu(x * 1, inplace=True), "channel_shuffle": lambda x: F.channel_shuffle(x, 2), "std_mean": lambda x: sum(torch.std_mean(x, 1)),
    "var_mean": lambda x: sum(torch.var_mean(x, (0, 2), correction=0)),
}  # fmt: skip
LOSSES = {
    "mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.7, **k), "smooth_l1 without beta": lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.0, **k),
    "huber": lambda x, y, **k: F.huber_loss(x, y, delta=0.8, **k), "bce": lambda x, y, **k: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **k),
    "weighted bce": lambda x, y, **k: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), weight=y.abs(), **k), "bce with logits": lambda x, y, **k: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **k),
    "kl_div": lambda x, y, **k: F.kl_div(x.log_softmax(1), y.softmax(1), **k), "soft margin": lambda x, y, **k: F.soft_margin_loss(x, y.sign(), **k),
    "cross entropy with probabilities": lambda x, y, **k: F.cross_entropy(x, y.softmax(1), **k),
}  # fmt: skip


def of_classes(**options):
    def loss(x, y, **reduction):
        targets = (torch.arange(4 * 5 * 8) * 7 % 6).view(4, 5, 8).to(x.device)
        weight = {"weight": torch.linspace(0.5, 2, 6, dtype=x.dtype).to(x.device)} if options.get("weighted") else {}
        return F.cross_entropy(x, targets, ignore_index=2, label_smoothing=options.get("smoothing", 0.0), **weight, **reduction)

    return loss


class LossTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.before = torch.xpud.fallback_counts()

    def tearDown(self):
        self.assertEqual(torch.xpud.fallback_counts(), self.before)

    def check(self, function, *arguments, constants=()):
        """Compares the result and the gradients of `arguments`; `constants` are further arguments."""
        dtype = arguments[0].dtype
        results = []
        for device in ("cpu", "xpud"):
            leaves = [argument.detach().to(device).requires_grad_() for argument in arguments]
            output = function(*leaves, *(constant.to(device) for constant in constants))
            weights = torch.linspace(0.5, 1, max(output.numel(), 1), dtype=torch.float64).to(dtype).view(output.shape).to(device)
            results.append([output, *torch.autograd.grad(output, leaves, weights, allow_unused=True)])
        for theirs, mine in zip(*results, strict=True):
            if theirs is None:
                self.assertIsNone(mine)
                continue
            self.assertEqual((mine.shape, mine.dtype), (theirs.shape, theirs.dtype))
            scale = theirs.abs().max().item() + 1
            torch.testing.assert_close(mine.cpu() / scale, theirs / scale, rtol=0, atol=TOLERANCE[dtype])

    def test_activations(self):
        for name, function in ACTIVATIONS.items():
            for dtype in TOLERANCE:
                with self.subTest(name, dtype=dtype):
                    self.check(function, torch.randn(4, 6, 8).mul(2).to(dtype))

    def test_numbers_at_the_edges(self):
        x = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 6.0, 1e30, -1e30, float("inf"), -float("inf"), float("nan")])
        for name in ("hardtanh", "relu6", "elu", "logsigmoid", "hardshrink", "softshrink", "threshold", "hardswish"):
            with self.subTest(name):
                torch.testing.assert_close(ACTIVATIONS[name](x.to("xpud")).cpu(), ACTIVATIONS[name](x), equal_nan=True)
        for function in (torch.logaddexp, torch.logaddexp2, torch.heaviside):
            a, b = x[:, None].expand(12, 12).contiguous(), x[None].expand(12, 12).contiguous()
            torch.testing.assert_close(function(a.to("xpud"), b.to("xpud")).cpu(), function(a, b), equal_nan=True)

    def test_losses(self):
        for name, function in LOSSES.items():
            for reduction in ("none", "sum", "mean"):
                for dtype in TOLERANCE:
                    if name == "soft margin" and dtype in (torch.float16, torch.bfloat16):
                        continue  # its sum is wider than the CPU's
                    with self.subTest(name, reduction=reduction, dtype=dtype):
                        x, y = torch.randn(4, 6, 8).to(dtype), torch.randn(4, 6, 8).to(dtype)
                        constant = name in ("soft margin", "weighted bce")
                        self.check(lambda x, y: function(x, y, reduction=reduction), *((x,) if constant else (x, y)), constants=(y,) if constant else ())

    def test_classes_of_images(self):
        for options in ({}, {"weighted": True}, {"smoothing": 0.1}):
            for reduction in ("none", "sum", "mean"):
                for dtype in (torch.float32, torch.float64):
                    for last in (False, True):
                        with self.subTest(reduction=reduction, dtype=dtype, last=last, **options):
                            x = torch.randn(4, 6, 5, 8, dtype=dtype)
                            x = x.to(memory_format=torch.channels_last) if last else x
                            self.check(lambda x: of_classes(**options)(x, None, reduction=reduction), x)

    def test_temporal_classification(self):
        lengths, counts = (40, 37, 30, 12, 0, 40), (9, 0, 14, 12, 0, 3)
        targets = torch.randint(1, 7, (6, 14))
        targets[3] = 2
        joined = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
        targets[0, 9:] = -1  # padding is not read
        for dtype in (torch.float32, torch.float64):
            scores = torch.randn(40, 6, 7, dtype=dtype)
            for labels in (targets, joined, targets.int()):
                for reduction in ("none", "sum", "mean"):
                    with self.subTest(dtype=dtype, shape=labels.shape, reduction=reduction):
                        self.check(lambda x, y: F.ctc_loss(x.log_softmax(2), y, lengths, counts, reduction=reduction, zero_infinity=True), scores, constants=(labels,))
                # The fourth sequence is too short for its repeated labels.
                losses = [F.ctc_loss(x.log_softmax(2), y, lengths, counts, reduction="none").cpu() for x, y in ((scores, labels), (scores.to("xpud"), labels.to("xpud")))]
                torch.testing.assert_close(losses[1], losses[0])
            for empty in (labels.new_zeros(0), labels.new_zeros(scores.size(1), 0)):  # every path is of blanks
                self.check(lambda x, y: F.ctc_loss(x.log_softmax(2), y, lengths, [0] * scores.size(1)), scores, constants=(empty,))
            self.check(lambda x, y: F.ctc_loss(x.log_softmax(2), y, torch.tensor(lengths), torch.tensor(counts), blank=0, zero_infinity=True), scores, constants=(joined,))
            self.check(lambda x, y: F.ctc_loss(x.log_softmax(1), y, (40,), (9,), blank=6), scores[:, 0], constants=(targets[0, :9] - 1,))
        x = torch.randn(9, 2, 4, dtype=torch.float64, device="xpud", requires_grad=True)
        labels = torch.tensor([[1, 2, 2], [3, 1, 0]], device="xpud")
        self.assertTrue(torch.autograd.gradcheck(lambda x: F.ctc_loss(x.log_softmax(2), labels, (9, 7), (3, 2)), x))
        nn_loss = torch.nn.CTCLoss(blank=3, zero_infinity=True)
        torch.testing.assert_close(nn_loss(x.log_softmax(2), labels.clamp(max=2), (9, 7), (3, 2)).cpu(), nn_loss(x.cpu().log_softmax(2), labels.cpu().clamp(max=2), (9, 7), (3, 2)))

    def test_margins_of_classes(self):
        targets = torch.tensor([0, 5, 2, 3, 3])
        for options in ({}, {"p": 2}, {"margin": 0.3}, {"p": 2, "weighted": True}):
            for reduction in ("none", "sum", "mean"):
                for dtype in (torch.float32, torch.float64):
                    with self.subTest(reduction=reduction, dtype=dtype, **options):
                        weight = torch.linspace(0.5, 2, 6, dtype=dtype)
                        rest = {key: value for key, value in options.items() if key != "weighted"}
                        self.check(lambda x, y, w: F.multi_margin_loss(x, y, weight=w if "weighted" in options else None, reduction=reduction, **rest),
                                   torch.randn(5, 6, dtype=dtype), constants=(targets, weight))  # fmt: skip
        self.check(lambda x, y: F.multi_margin_loss(x, y), torch.randn(6), constants=(torch.tensor(2),))

    def test_planes_of_classes(self):
        """Scores of [N, C, H, W] in every layout, without copies; targets out of range are reported."""
        targets = (torch.arange(3 * 5 * 8) * 7 % 6).view(3, 5, 8)
        x = torch.randn(3, 6, 5, 8)
        for y in (x, x.to(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3), x[:1].expand(3, 6, 5, 8), torch.randn(3, 6, 7, 8)[:, :, 1:6]):
            for t in (targets, targets.transpose(1, 2).contiguous().transpose(1, 2), targets.int().long()):
                for reduction in ("none", "sum", "mean"):
                    results = []
                    for device in ("cpu", "xpud"):
                        # The CPU's gradient wants its own layout.
                        leaf = (y.contiguous() if device == "cpu" else y.to(device)).detach().requires_grad_()
                        loss = F.nll_loss(leaf, t.to(device), reduction=reduction, ignore_index=1)
                        results.append([loss.cpu(), torch.autograd.grad(loss, leaf, torch.ones_like(loss))[0].cpu()])
                    torch.testing.assert_close(results[1], results[0])
        with self.assertRaises(IndexError):
            F.nll_loss(x.to("xpud"), targets.to("xpud") + 1).item()
        for wrong in ({"target": targets[0]}, {"target": targets[:, :4]}, {"target": targets, "weight": torch.ones(5)}):
            with self.assertRaises((RuntimeError, ValueError)):
                F.nll_loss(x.to("xpud"), **{key: value.to("xpud") for key, value in wrong.items()})

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "does not support non-positive values for delta"):
            F.huber_loss(torch.ones(2, device="xpud"), torch.ones(2, device="xpud"), delta=0)
        with self.assertRaisesRegex(RuntimeError, "Halving dimension must be even"):
            F.glu(torch.ones(3, device="xpud"))


if __name__ == "__main__":
    unittest.main()
