"""Checks of torch.compile with one operator of PyTorch's op database, or with one of its modules: compiled on xpud, and run on the CPU.

Values are computed by fused kernels, or by operators that the back end chose. `made` tells how many kernels a call generated, so that a back end that
stopped making kernels is noticed.
"""

import functools
import logging
import os
import warnings

import torch
import torch._dynamo
from torch._inductor import config, metrics
from torch.utils._pytree import tree_map

from opnet_exceptions import UNINITIALISED, is_random
from opnet_modules import Item as ModuleItem
from opnet_ops import Item, Outcome, gradients_of
from opnet_tensors import DEVICE, distance, is_tensor, leaves, on_host

ROUNDING = 2.0**-8  # of bfloat16
torch._dynamo.config.recompile_limit = 64
config.force_disable_caches = True  # what is counted is what was generated
config.fallback_random = True  # random operators draw the numbers of eager execution
warnings.filterwarnings("ignore")


class Said(logging.Handler):
    """Keeps what the back end says about operators."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


SAID = Said()
logging.getLogger("torch_xpud.inductor").addHandler(SAID)
logging.getLogger("torch_xpud.inductor").setLevel(logging.INFO)
logging.getLogger("torch_xpud.inductor").propagate = "XPUD_TEST_FULL" in os.environ


def fresh():
    torch._dynamo.reset()
    metrics.reset()
    SAID.lines.clear()


def made():
    return {"kernels": metrics.generated_kernel_count, "operators": list(SAID.lines)}


def compiled(call, **options):
    """Returns `call`, compiled where it is called with tensors of xpud."""

    @functools.wraps(call)
    def run(*args, **kwargs):
        return call(*args, **kwargs)

    return torch.compile(run, **options)


def values(item, **options):
    for index, tree, _ in item.samples(1, 1):
        theirs = Outcome(item.call, tree, "cpu")
        item.compared_samples += theirs.error is None
        makes_tensors = not leaves(tree) and bool(leaves(theirs.result))
        mine = Outcome(compiled(item.call, **options), tree, DEVICE, **({"device": DEVICE} if makes_tensors else {}))
        for kind, message in item.differences(item.call, tree, mine, theirs):
            yield f"sample {index}", kind, message


def dynamic(item):
    yield from values(item, dynamic=True)


def gradients(item, **options):
    if not item.op.supports_autograd or item.dtype not in item.op.supported_backward_dtypes("cpu"):
        return
    for index, tree, sample in item.samples(1, 1, requires_grad=True):
        calls = [functools.partial(gradients_of, call, sample.output_process_fn_grad, False) for call in (compiled(item.call, **options), item.call)]
        mine, theirs = Outcome(calls[0], tree, DEVICE), Outcome(calls[1], tree, "cpu")
        for kind, message in item.differences(calls[1], tree, mine, theirs, tolerance=item.gradient_tolerance):
            yield f"sample {index}", kind, message


def accuracy(item):
    """Checks that bfloat16 is computed in float32 and rounded when stored: against float64 the error is at most twice that of eager execution, or that
    of one rounding."""
    if item.dtype != torch.bfloat16 or item.op.name in UNINITIALISED:
        return
    for index, tree, _ in item.samples(1, 1):
        if is_random(item.op, tree):
            continue
        wide = tree_map(lambda value: value.detach().double() if is_tensor(value) and value.dtype == torch.bfloat16 else value, tree)
        exact, eager, mine = Outcome(item.call, wide, "cpu"), Outcome(item.call, tree, DEVICE), Outcome(compiled(item.call), tree, DEVICE)
        if exact.error is None and eager.error is None and mine.error is None:
            for number, (got, want, right) in enumerate(zip(leaves(mine.result), leaves(eager.result), leaves(exact.result))):
                if not got.is_floating_point() or got.shape != right.shape or got.layout != torch.strided:
                    continue
                error, allowed = distance(got, right), 2 * distance(want, right)
                size = on_host(right).double().abs().nan_to_num(0, 0, 0).max().item() if right.numel() else 0.0
                if error > max(allowed, ROUNDING * size):
                    yield f"sample {index}", "accuracy", f"result {number} of up to {size:.3g}: the error is {error:.3g}, twice that of eager {allowed:.3g}"


ASPECTS = {"compiled": values, "compiled accuracy": accuracy, "compiled dynamic": dynamic, "compiled gradients": gradients}


def run_item(name, dtype, full, aspects, announce):
    """Runs a compiled operator in a type. Returns what opnet_ops.run_item returns, and what the compiler made."""
    item = Item(name, dtype, full)
    failures, counts = [], {}
    for aspect in aspects or (ASPECTS if full else ("compiled",)):
        announce(aspect)
        fresh()
        try:
            found = list(ASPECTS[aspect](item))
        except Exception as error:
            found = [("", "net", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")]
        counts[aspect] = made()
        failures += [{"aspect": aspect, "variant": v, "kind": k, "message": m} for v, k, m in found]
    return {"failures": failures, "fell_back": item.fell_back, "compared": item.compared_samples, "made": counts}


def compile_module(module):
    """Compiles the module's calls. Module.compile() would leave those of PyTorch's own modules to eager execution: Dynamo begins at no code of PyTorch's."""
    module._compiled_call_impl = compiled(module._call_impl)


def run_module(name, dtype, full, aspects, announce):
    """Runs a compiled module: forward in evaluation, forward and backward in training."""
    item = ModuleItem(name, dtype, full)
    failures, counts = [], {}
    for aspect, training in (("compiled evaluation", False), ("compiled training", True)):
        if aspects and aspect not in aspects:
            continue
        announce(aspect)
        fresh()
        try:
            found = [(f"sample {index}", *difference) for index, sample in item.samples(training, 1)
                     for difference in item.differences(sample, training, prepare=compile_module)]  # fmt: skip
        except Exception as error:
            found = [("", "net", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")]
        counts[aspect] = made()
        failures += [{"aspect": aspect, "variant": v, "kind": k, "message": m} for v, k, m in found]
    return {"failures": failures, "fell_back": item.fell_back, "compared": item.compared_samples, "made": counts}
