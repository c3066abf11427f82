"""Random numbers: each operator's range, distribution, seeds and generators, compared with PyTorch's on the CPU.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_random.py

Seeds are fixed, so a test that passes once always passes. Bounds are at least six deviations.
"""

import math
import unittest

import torch
import torch.nn.functional as F
import torch_xpud  # noqa: F401  also without the entry point
from torch import nn

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COUNT = 100_000


def empty(device, dtype, count=COUNT):
    return torch.empty(count, device=device, dtype=dtype)


def full(value, device, dtype, count=COUNT):
    return torch.full((count,), value, device=device, dtype=dtype)


def numbered(device, dtype, *shape):
    return torch.arange(math.prod(shape), device=device, dtype=dtype).view(1, 1, *shape)


def initialised(function, *shape, **options):
    return lambda device, dtype: function(torch.empty(*shape, device=device, dtype=dtype), **options).flatten()


# Each as (device, dtype) -> numbers.
FLOATING = {
    "uniform_": lambda d, t: empty(d, t).uniform_(),
    "uniform_ of a range": lambda d, t: empty(d, t).uniform_(-3, 5),
    "normal_": lambda d, t: empty(d, t).normal_(2, 3),
    "exponential_": lambda d, t: empty(d, t).exponential_(0.5),
    "log_normal_": lambda d, t: empty(d, t).log_normal_(0.3, 0.5),
    "cauchy_": lambda d, t: empty(d, t).cauchy_(1, 2),
    "geometric_": lambda d, t: empty(d, t).geometric_(0.3),
    "bernoulli_": lambda d, t: empty(d, t).bernoulli_(0.3),
    "bernoulli_ of tensors": lambda d, t: empty(d, t).bernoulli_(full(0.7, d, torch.float32)),
    "bernoulli": lambda d, t: torch.bernoulli(full(0.25, d, t)),
    "random_": lambda d, t: empty(d, t).random_(),
    "random_ to": lambda d, t: empty(d, t).random_(10),
    "random_ from": lambda d, t: empty(d, t).random_(-5, 7),
    "rand": lambda d, t: torch.rand(COUNT, device=d, dtype=t),
    "randn": lambda d, t: torch.randn(COUNT, device=d, dtype=t),
    "randint": lambda d, t: torch.randint(-2, 9, (COUNT,), device=d, dtype=t),
    "rand_like": lambda d, t: torch.rand_like(empty(d, t)),
    "randn_like": lambda d, t: torch.randn_like(empty(d, t)),
    "randint_like": lambda d, t: torch.randint_like(empty(d, t), 3, 8),
    "poisson": lambda d, t: torch.poisson(full(3, d, t)),
    "poisson, large": lambda d, t: torch.poisson(full(40, d, t)),
    "normal of tensors": lambda d, t: torch.normal(full(1, d, t), full(2, d, t)),
    "normal of a mean": lambda d, t: torch.normal(full(1, d, t), 0.5),
    "normal of a deviation": lambda d, t: torch.normal(1.5, full(2, d, t)),
    "poisson": lambda d, t: torch.poisson(full(3.5, d, t)),
    "dropout": lambda d, t: F.dropout(full(1, d, t), 0.3),
    "alpha_dropout": lambda d, t: F.alpha_dropout(full(1, d, t), 0.3),
    "feature dropout": lambda d, t: F.dropout2d(torch.ones(100, 100, 2, 2, device=d, dtype=t), 0.3)[:, :, 0, 0].flatten(),
    "feature_alpha_dropout": lambda d, t: F.feature_alpha_dropout(torch.ones(100, 100, 2, device=d, dtype=t), 0.3, True)[:, :, 0].flatten(),
    "gumbel_softmax": lambda d, t: F.gumbel_softmax(torch.zeros(COUNT // 4, 4, device=d, dtype=t))[:, 0],
    "trunc_normal_": lambda d, t: nn.init.trunc_normal_(empty(d, t), 0.5, 1, -1, 1),
}

SINGLES = {
    "binomial, few": lambda d, t: torch.binomial(full(12, d, t), full(0.25, d, t)),
    "binomial, large": lambda d, t: torch.binomial(full(100, d, t), full(0.75, d, t)),
    "rrelu": lambda d, t: F.rrelu(full(-1, d, t), 0.1, 0.6, True),  # PyTorch's CPU has none in float16
    "binomial": lambda d, t: torch.binomial(full(20, d, t), full(0.3, d, t)),
    "_standard_gamma": lambda d, t: torch._standard_gamma(full(1.7, d, t)),
    "_sample_dirichlet": lambda d, t: torch._sample_dirichlet(torch.ones(COUNT // 4, 3, device=d, dtype=t))[:, 0],
    "multinomial": lambda d, t: torch.multinomial(torch.tensor([1, 0, 3, 6], device=d, dtype=t), COUNT, True),
    "multinomial without": lambda d, t: torch.multinomial(torch.tensor([1, 2, 3, 6], device=d, dtype=t).expand(COUNT // 4, 4), 2)[:, 1],
    "gamma": lambda d, t: torch.distributions.Gamma(torch.tensor(2.0, device=d, dtype=t), torch.tensor(3.0, device=d, dtype=t)).sample((COUNT // 4,)),
    "beta": lambda d, t: torch.distributions.Beta(torch.tensor(2.0, device=d, dtype=t), torch.tensor(3.0, device=d, dtype=t)).sample((COUNT // 4,)),
    "categorical": lambda d, t: torch.distributions.Categorical(torch.tensor([0.2, 0.3, 0.5], device=d, dtype=t)).sample((COUNT,)),
    "uniform init": initialised(nn.init.uniform_, 300, 300, a=-2, b=1),
    "normal init": initialised(nn.init.normal_, 300, 300, std=0.2),
    "xavier uniform": initialised(nn.init.xavier_uniform_, 300, 200),
    "xavier normal": initialised(nn.init.xavier_normal_, 300, 200),
    "kaiming uniform": initialised(nn.init.kaiming_uniform_, 300, 200),
    "kaiming normal": initialised(nn.init.kaiming_normal_, 300, 200),
    "orthogonal": initialised(nn.init.orthogonal_, 128, 128),
    "sparse": initialised(nn.init.sparse_, 300, 200, sparsity=0.4),
    "fractional_max_pool2d": lambda d, t: F.fractional_max_pool2d(numbered(d, t, 8, 8).expand(2000, 2, 8, 8), 2, 5).flatten(),
    "fractional_max_pool3d": lambda d, t: F.fractional_max_pool3d(numbered(d, t, 6, 6, 6).expand(300, 2, 6, 6, 6), 2, 4).flatten(),
}

WHOLE = {
    "random_": lambda d, t: empty(d, t).random_(),
    "random_ to": lambda d, t: empty(d, t).random_(100),
    "random_ from": lambda d, t: empty(d, t).random_(5, 17),
    "randint": lambda d, t: torch.randint(3, 90, (COUNT,), device=d, dtype=t),
    "randint_like": lambda d, t: torch.randint_like(empty(d, t), 7),
    "bernoulli_": lambda d, t: empty(d, t).bernoulli_(0.3),
    "bernoulli_ of tensors": lambda d, t: empty(d, t).bernoulli_(full(0.7, d, torch.float64)),
    "geometric_": lambda d, t: empty(d, t).geometric_(0.3),
}


def distance(a, b):
    """Returns the Kolmogorov-Smirnov distance of `a` and `b`: over all bounds, the largest difference of the shares below the bound."""
    points = torch.cat([a, b]).unique()
    parts = [torch.searchsorted(each.sort().values, points, right=True).double() / each.numel() for each in (a, b)]
    return (parts[0] - parts[1]).abs().max().item()


class DistributionTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def check(self, draw, dtype):
        ours, theirs = draw("xpud", dtype), draw("cpu", dtype)
        self.assertEqual(ours.device.type, "xpud")
        self.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape))
        exact = 0 if not ours.is_floating_point() else torch.finfo(ours.dtype).eps
        ours, theirs = ours.cpu().double(), theirs.double()
        # a distance this large occurs once in 1e9 samples; 16-bit types round
        self.assertLess(distance(ours, theirs), 3.2 * math.sqrt(2 / ours.numel()) + exact)
        self.assertEqual(ours.isfinite().all().item(), theirs.isfinite().all().item())

    def check_all(self, table, dtypes):
        for name, draw in table.items():
            for dtype in dtypes:
                with self.subTest(name, dtype=dtype):
                    self.check(draw, dtype)

    def test_floating_numbers_are_distributed_as_the_cpus(self):
        self.check_all(FLOATING, FLOATS)

    def test_other_distributions_are_the_cpus(self):
        self.check_all(SINGLES, (torch.float32,))

    def test_whole_numbers_are_distributed_as_the_cpus(self):
        self.check_all(WHOLE, INTEGERS)
        self.check_all({name: WHOLE[name] for name in ("random_", "bernoulli_", "bernoulli_ of tensors")}, (torch.bool,))

    def test_moments_are_those_of_theory(self):
        count = 2_000_000
        gamma = 0.5772156649015329
        for name, draw, mean, variance, fourth in (
            ("uniform", lambda x: x.uniform_(-1, 3), 1, 16 / 12, 256 / 80),
            ("normal", lambda x: x.normal_(2, 3), 2, 9, 243),
            ("exponential", lambda x: x.exponential_(0.5), 2, 4, 144),
            ("gumbel", lambda x: x.exponential_().log_().neg_(), gamma, math.pi**2 / 6, math.pi**4 * 3 / 20),
            ("bernoulli", lambda x: x.bernoulli_(0.3), 0.3, 0.21, 0.21 * (1 - 3 * 0.21)),
            ("integers", lambda x: x.random_(0, 7), 3, 4, 28),
        ):  # fmt: skip
            for dtype in FLOATS:
                with self.subTest(name, dtype=dtype):
                    drawn = draw(empty("xpud", dtype, count)).cpu().double()
                    # 16-bit numbers are rounded, and a uniform number that rounds to the upper bound becomes the lower bound
                    rounding = torch.finfo(dtype).eps * (1 + abs(mean) + variance)
                    self.assertAlmostEqual(drawn.mean().item(), mean, delta=6 * math.sqrt(variance / count) + rounding)
                    self.assertAlmostEqual(drawn.var().item(), variance, delta=6 * math.sqrt((fourth - variance**2) / count) + 2 * rounding)

    def test_moments_of_distributions_with_parameters(self):
        count = 400_000
        # names, draws, means and variances; fourth moments are bounded by 6 variances squared and more
        cases = [(f"gamma {a}", lambda d, a=a: torch._standard_gamma(full(a, d, torch.float64, count)), a, a) for a in (0.2, 1.0, 7.5, 1e4)]
        cases += [(f"poisson {r}", lambda d, r=r: torch.poisson(full(r, d, torch.float64, count)), r, r) for r in (0.1, 9.9, 10.0, 1e5)]
        for n, p in ((3, 0.5), (1000, 0.002), (50, 0.9), (1e6, 0.3)):
            cases.append((f"binomial {n} {p}", lambda d, n=n, p=p: torch.binomial(full(n, d, torch.float64, count), full(p, d, torch.float64, count)), n * p, n * p * (1 - p)))
        before = torch.xpud.fallback_counts()
        for name, draw, mean, variance in cases:
            with self.subTest(name):
                x = draw("xpud").cpu()
                self.assertAlmostEqual(x.mean().item(), mean, delta=6 * math.sqrt(variance / count))
                spread = (x - mean).pow(4).mean().sub(variance**2).clamp_min(0).sqrt().item()
                self.assertAlmostEqual(x.var().item(), variance, delta=6 * (spread + variance / math.sqrt(count)) / math.sqrt(count))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_parameters_at_the_edges(self):
        ones = torch.ones(100, device="xpud")
        self.assertTrue((torch.poisson(ones * 0) == 0).all().item())
        self.assertTrue((torch.binomial(ones * 9, ones) == 9).all().item())
        self.assertTrue((torch.binomial(ones * 9, ones * 0) == 0).all().item())
        self.assertTrue((torch.binomial(ones * 0, ones * 0.5) == 0).all().item())
        self.assertTrue((torch._standard_gamma(ones * 1e-3) > 0).all().item())
        shares = torch.distributions.Dirichlet(torch.tensor([0.5, 2.0, 1.0]).xpud()).sample((1000,))
        self.assertTrue(torch.allclose(shares.sum(-1).cpu(), torch.ones(1000)))
        self.assertTrue(torch.binomial(torch.arange(3.0, device="xpud"), torch.rand(4, 1, device="xpud")).shape == (4, 3))

    def test_neighbours_are_independent(self):
        for dtype in FLOATS:
            x = torch.rand(400_000, device="xpud", dtype=dtype).cpu().double() - 0.5
            for lag in (1, 2, 3, 4, 8):
                self.assertLess(abs((x[lag:] * x[:-lag]).mean().item() * 12), 6 / math.sqrt(x.numel()) + torch.finfo(dtype).eps**2)
            # later numbers do not repeat earlier ones
            y = torch.rand(400_000, device="xpud", dtype=dtype).cpu().double() - 0.5
            for shift in (0, 100_000, 200_000, 300_000):
                self.assertLess(abs((x.roll(shift) * y).mean().item() * 12), 6 / math.sqrt(x.numel()) + torch.finfo(dtype).eps**2)

    def test_permutations(self):
        for count in (0, 1, 2, 1000):
            order = torch.randperm(count, device="xpud")
            self.assertEqual((order.device.type, order.dtype), ("xpud", torch.int64))
            self.assertEqual(order.sort().values.tolist(), list(range(count)))
        self.assertEqual(torch.randperm(9, device="xpud", dtype=torch.int32).dtype, torch.int32)
        first = torch.stack([torch.randperm(5, device="xpud") for _ in range(1500)])
        for place in range(5):
            for each in first[:, place].cpu().bincount(minlength=5).tolist():
                self.assertAlmostEqual(each, 300, delta=6 * math.sqrt(1500 * 0.2 * 0.8))

    def test_drawing_without_replacement_gives_each_once(self):
        for dtype in FLOATS:
            drawn = torch.multinomial(torch.rand(300, 20, device="xpud", dtype=dtype) + 0.1, 20).cpu()
            self.assertTrue((drawn.sort(1).values == torch.arange(20)).all())
        weights = torch.tensor([0.0, 1.0, 0.0, 2.0], device="xpud")
        self.assertEqual(set(torch.multinomial(weights, 10_000, True).tolist()), {1, 3})
        with self.assertRaisesRegex(RuntimeError, "element < 0"):
            torch.multinomial(torch.tensor([1.0, -1.0], device="xpud"), 1).item()


class RangeTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_uniform_numbers_keep_below_their_end(self):
        for dtype in FLOATS:
            for low, high in ((0, 1), (1, 2), (-3, -1), (0.5, 0.75), (100, 101)):
                with self.subTest(dtype=dtype, low=low, high=high):
                    drawn = empty("xpud", dtype, 2_000_000).uniform_(low, high)
                    self.assertGreaterEqual(drawn.min().item(), low)
                    self.assertLess(drawn.max().item(), high)
            self.assertEqual(empty("xpud", dtype, 1000).uniform_(2, 2).unique().tolist(), [2])
            self.assertLess(torch.rand(5_000_000, device="xpud", dtype=dtype).max().item(), 1)

    def test_float64_has_53_bits(self):
        drawn = torch.rand(100_000, device="xpud", dtype=torch.float64).cpu()
        self.assertEqual(drawn.unique().numel(), drawn.numel())
        self.assertGreater(((drawn * 2**32).frac() != 0).double().mean().item(), 0.99)
        # the last bit is set in half of the numbers
        self.assertAlmostEqual(((drawn * 2**53) % 2).mean().item(), 0.5, delta=6 * 0.5 / math.sqrt(drawn.numel()))

    def test_exponential_numbers_are_positive(self):
        self.assertGreater(empty("xpud", torch.float32, 50_000_000).exponential_().min().item(), 0)
        for dtype in FLOATS:
            for rate in (1, 3, 1000):
                drawn = empty("xpud", dtype, 5_000_000).exponential_(rate)
                self.assertGreater(drawn.min().item(), 0)
                self.assertTrue(drawn.isfinite().all().item())
        self.assertEqual(empty("xpud", torch.float32, 10).exponential_(math.inf).tolist(), [0.0] * 10)

    def test_gumbel_softmax_is_finite(self):
        for dtype in FLOATS:
            drawn = F.gumbel_softmax(torch.zeros(40_000, 100, device="xpud", dtype=dtype), hard=False)
            self.assertTrue(drawn.isfinite().all().item())

    def test_normal_numbers_are_finite(self):
        for dtype in FLOATS:
            drawn = torch.randn(5_000_000, device="xpud", dtype=dtype)
            self.assertTrue(drawn.isfinite().all().item())
            self.assertGreater(drawn.abs().max().item(), 4.5)

    def test_rare_events_are_as_rare_as_asked(self):
        for probability in (1e-6, 3e-5):
            for dtype in (torch.float32, torch.uint8):
                count = 20_000_000
                for drawn in (empty("xpud", dtype, count).bernoulli_(probability), 1 - empty("xpud", dtype, count).bernoulli_(1 - probability)):
                    self.assertAlmostEqual(drawn.sum(dtype=torch.int64).item() / count, probability, delta=6 * math.sqrt(probability / count))
        self.assertEqual(empty("xpud", torch.float32, 5_000_000).bernoulli_(0).sum().item(), 0)
        self.assertEqual(empty("xpud", torch.float32, 5_000_000).bernoulli_(1).min().item(), 1)

    def test_probability_below_float32s_steps(self):
        self.assertEqual(empty("xpud", torch.float32, 50_000_000).bernoulli_(1e-12).sum().item(), 0)

    def test_whole_numbers_reach_their_ends(self):
        ends = {torch.uint8: 255, torch.int8: 127, torch.int16: 32767, torch.float16: 2048, torch.bfloat16: 256, torch.bool: 1}
        for dtype, high in ends.items():
            drawn = empty("xpud", dtype, 2_000_000).random_()
            self.assertEqual((drawn.min().item(), drawn.max().item()), (0, high))
        drawn = empty("xpud", torch.int64, 1_000_000).random_(-(2**62), 2**62)
        self.assertLess(drawn.min().item(), -(2**61))
        self.assertGreater(drawn.max().item(), 2**61)
        self.assertGreater(empty("xpud", torch.int64, 1000).random_().max().item(), 2**62)
        self.assertLess(empty("xpud", torch.int64, 1000).random_(-(2**63), None).min().item(), -(2**61))

    def test_what_cannot_be_drawn_is_refused(self):
        x = empty("xpud", torch.float32, 3)
        for draw in (lambda: x.uniform_(2, 1), lambda: x.normal_(0, -1), lambda: x.exponential_(0), lambda: x.bernoulli_(1.5), lambda: x.random_(3, 3),
                     lambda: x.geometric_(0), lambda: x.cauchy_(0, -1), lambda: x.log_normal_(0, -1), lambda: x.to(torch.int8).random_(0, 1000),
                     lambda: torch.poisson(x.fill_(-1))):  # fmt: skip
            with self.assertRaises((RuntimeError, ValueError)):
                draw()


class GeneratorTest(unittest.TestCase):
    with_generator = {
        "uniform_": lambda x, g: x.uniform_(generator=g),
        "normal_": lambda x, g: x.normal_(generator=g),
        "exponential_": lambda x, g: x.exponential_(generator=g),
        "log_normal_": lambda x, g: x.log_normal_(generator=g),
        "cauchy_": lambda x, g: x.cauchy_(generator=g),
        "geometric_": lambda x, g: x.geometric_(0.01, generator=g),
        "bernoulli_": lambda x, g: x.bernoulli_(0.5, generator=g),
        "bernoulli": lambda x, g: torch.bernoulli(torch.full_like(x, 0.5), generator=g),
        "random_": lambda x, g: x.random_(1000, generator=g),
        "rand": lambda x, g: torch.rand(x.shape, generator=g, device=x.device),
        "randn": lambda x, g: torch.randn(x.shape, generator=g, device=x.device),
        "randint": lambda x, g: torch.randint(1000, x.shape, generator=g, device=x.device),
        "randperm": lambda x, g: torch.randperm(x.numel(), generator=g, device=x.device),
        "multinomial": lambda x, g: torch.multinomial(torch.ones_like(x), 200, True, generator=g),
        "multinomial without": lambda x, g: torch.multinomial(torch.ones_like(x), 200, generator=g),
        "poisson": lambda x, g: torch.poisson(torch.full_like(x, 50), generator=g),
        "binomial": lambda x, g: torch.binomial(torch.full_like(x, 100), torch.full_like(x, 0.5), generator=g),
        "_standard_gamma": lambda x, g: torch._standard_gamma(torch.ones_like(x), generator=g),
        "normal": lambda x, g: torch.normal(torch.zeros_like(x), torch.ones_like(x), generator=g),
        "rrelu": lambda x, g: torch.ops.aten.rrelu(-torch.ones_like(x), 0.1, 0.9, True, g),
        "trunc_normal_": lambda x, g: nn.init.trunc_normal_(x, generator=g),
        "rrelu_with_noise": lambda x, g: torch.ops.aten.rrelu_with_noise(-torch.ones_like(x), torch.zeros_like(x), 0.1, 0.9, True, g),
    }
    without_generator = {
        "dropout": lambda x, g: F.dropout(torch.ones_like(x)),
        "feature_dropout": lambda x, g: F.dropout1d(torch.ones(20, 10, 3, device=x.device)),
        "alpha_dropout": lambda x, g: F.alpha_dropout(torch.ones_like(x), training=True),
        "gumbel_softmax": lambda x, g: F.gumbel_softmax(torch.zeros_like(x)),
        "dirichlet": lambda x, g: torch.distributions.Dirichlet(torch.ones(4, device=x.device)).sample((9,)),
        "fractional_max_pool2d": lambda x, g: F.fractional_max_pool2d(torch.arange(640.0, device=x.device).view(1, 10, 8, 8), 2, 5),
        "kaiming_uniform_": lambda x, g: nn.init.kaiming_uniform_(x.view(50, 20)),
    }

    def draws(self, call, generator=None):
        return [call(torch.zeros(1000, device="xpud"), generator).clone() for _ in range(2)]

    def check(self, name, make):
        """Checks that `make` seeds, and draws twice."""
        (first, second), again, other = make(11), make(11), make(12)
        with self.subTest(name):
            self.assertTrue(first.equal(again[0]) and second.equal(again[1]), "a seed repeats")
            self.assertFalse(first.equal(second), "the generator advances")
            self.assertFalse(first.equal(other[0]), "seeds differ")

    def test_a_given_generator_decides(self):
        for name, call in self.with_generator.items():

            def make(seed, call=call):
                torch.manual_seed(torch.seed() % 1000)  # which must not matter
                generator = torch.Generator("xpud").manual_seed(seed)
                before = generator.get_state()
                drawn = self.draws(call, generator)
                self.assertFalse(before.equal(generator.get_state()))
                return drawn

            self.check(name, make)

    def test_a_given_generator_leaves_the_default_ones_alone(self):
        for name, call in self.with_generator.items():
            torch.manual_seed(1)
            states = torch.xpud.get_rng_state(), torch.get_rng_state()
            self.draws(call, torch.Generator("xpud").manual_seed(2))
            with self.subTest(name):
                self.assertTrue(states[0].equal(torch.xpud.get_rng_state()))
                self.assertTrue(states[1].equal(torch.get_rng_state()))

    def test_the_default_generator_decides_otherwise(self):
        for name, call in {**self.with_generator, **self.without_generator}.items():

            def make(seed, call=call):
                torch.manual_seed(seed)
                return self.draws(call)

            self.check(name, make)

    def test_a_state_can_be_restored(self):
        for name, call in self.with_generator.items():
            generator = torch.Generator("xpud").manual_seed(4)
            self.draws(call, generator)
            state = generator.get_state()
            expected = self.draws(call, generator)
            generator.set_state(state)
            with self.subTest(name):
                self.assertTrue(all(map(torch.equal, self.draws(call, generator), expected)))


if __name__ == "__main__":
    unittest.main()
