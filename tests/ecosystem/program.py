"""The base class of the ecosystem's tests: a program runs on the CPU and on xpud, and gives the same results.

A program is a function of a device. It builds its models and data on the CPU from a fixed seed, and moves them as a user would. Dropout is off:
random numbers differ between devices.
"""

import collections
import dataclasses
import json
import os
import pathlib
import unittest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402

FULL = bool(os.environ.get("XPUD_TEST_FULL"))


def seed():
    torch.manual_seed(0)


def difference(expected, actual, tolerance, path="result"):
    """Yields a line for each place where two nested results differ. Numbers and tensors may differ by `tolerance`, relative and absolute."""
    if isinstance(expected, torch.Tensor):
        expected, actual = expected.detach(), torch.as_tensor(actual).detach().cpu()
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            yield f"{path}: {tuple(actual.shape)} {actual.dtype}, expected {tuple(expected.shape)} {expected.dtype}"
        elif expected.is_floating_point():
            if not torch.allclose(expected, actual, rtol=tolerance, atol=tolerance, equal_nan=True):
                yield f"{path}: differs by up to {(expected - actual).abs().max().item():.2e}, allowed {tolerance:.0e}"
        elif not torch.equal(expected, actual):
            yield f"{path}: {actual.flatten()[:10].tolist()}, expected {expected.flatten()[:10].tolist()}"
    elif isinstance(expected, dict):
        if expected.keys() != actual.keys():
            yield f"{path}: keys {sorted(actual)}, expected {sorted(expected)}"
        for key in expected.keys() & actual.keys():
            yield from difference(expected[key], actual[key], tolerance, f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            yield f"{path}: {len(actual)} elements, expected {len(expected)}"
        for index, pair in enumerate(zip(expected, actual)):
            yield from difference(*pair, tolerance, f"{path}[{index}]")
    elif isinstance(expected, float):
        if not abs(expected - actual) <= tolerance * (1 + abs(expected)):
            yield f"{path}: {actual}, expected {expected}"
    elif expected != actual:
        yield f"{path}: {actual!r}, expected {expected!r}"


@dataclasses.dataclass
class Fallbacks:
    """Which operators ran on the CPU within a `with` block."""

    counts: dict = dataclasses.field(default_factory=dict)

    def __enter__(self):
        self._before = torch.xpud.fallback_counts()
        return self

    def __exit__(self, *exception):
        before = collections.Counter(self._before)
        self.counts = {name: count - before[name] for name, count in torch.xpud.fallback_counts().items() if count > before[name]}


class ProgramTest(unittest.TestCase):
    """A test case whose tests call `check`."""

    def check(self, program, tolerance=1e-4, fallbacks=()):
        """Runs program("cpu") and program("xpud"), and compares what they return.

        fallbacks: the operators that are allowed to run on the CPU, as ATen names. An allowed one that no longer does is a failure, too.
        """
        seed()
        expected = program("cpu")
        seed()
        with Fallbacks() as used:
            actual = program("xpud")
            torch.xpud.synchronize()
        self._record(used.counts)
        found = list(difference(expected, actual, tolerance))
        self.assertFalse(found, "\n".join(found))
        self.assertEqual(sorted(used.counts), sorted(fallbacks), "operators that ran on the CPU, and those that the test allows")
        return actual

    def _record(self, counts):
        """Appends the fallbacks of this program to the file of XPUD_ECOSYSTEM_REPORT, which report.py reads."""
        path = os.environ.get("XPUD_ECOSYSTEM_REPORT")
        if path:
            with pathlib.Path(path).open("a") as file:
                file.write(json.dumps({"program": (self._subtest or self).id(), "fallbacks": counts}) + "\n")
