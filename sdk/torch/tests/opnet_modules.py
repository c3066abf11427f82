"""Checks of one module of PyTorch's module database: on xpud and on the CPU, in training and in evaluation."""

import copy
import itertools

import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_utils import freeze_rng_state

from opnet_exceptions import RANDOM_MODULES
from opnet_ops import SEED, brief, clear_errors, lacks_kernel, weight_like
from opnet_tensors import DEVICE, SIXTEEN_BITS, Tolerance, channels_last, is_as_near, leaves, placed, relaid, strided, tree_differences, widened

MODULES = {info.name: info for info in module_db}
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64)


def types_of(info):
    """Returns the types to run. The database lists float32 and float64 for most modules; 16-bit types run too if the CPU has kernels."""
    return [t for t in TYPES if t in info.dtypes or t in (torch.bfloat16, torch.float16)]


def quiet(module):
    """Removes randomness from a module."""
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif hasattr(part, "dropout") and isinstance(part.dropout, float):
            part.dropout = 0.0
    return module


class Run:
    """Returns a module's outputs, gradients, parameters and buffers after one forward and backward, or the exception."""

    def __init__(self, module, args, kwargs, backward, count=None):
        self.module, self.error, self.compared = module, None, {}
        torch.manual_seed(SEED)
        try:
            before = torch.xpud.fallback_counts()
            outputs = leaves(module(*args, **kwargs))
            torch.xpud.synchronize()
            middle = torch.xpud.fallback_counts()
            self.compared = {"output": outputs}
            if backward:
                self.backward(outputs, args, kwargs)
            self.compared["state"] = list(module.state_dict().values())
            torch.xpud.synchronize()
            if count is not None:
                count("forward", before, middle)
                count("backward", middle, torch.xpud.fallback_counts())
        except Exception as error:
            self.error = error.with_traceback(None)
            clear_errors()

    def backward(self, outputs, args, kwargs):
        outputs = [o for o in outputs if o.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [weight_like(o, False) for o in outputs])
        self.compared["gradient of an input"] = [t.grad.contiguous() for t in leaves((args, kwargs)) if t.grad is not None]
        self.compared["gradient of a parameter"] = [p.grad.contiguous() for p in self.module.parameters() if p.grad is not None]


class Item:
    def __init__(self, name, dtype, full):
        self.info, self.dtype, self.full = MODULES[name], dtype, full
        self.fell_back = {"forward": {}, "backward": {}}
        self.compared_samples = 0

    def samples(self, training, count):
        torch.manual_seed(SEED)
        made = self.info.module_inputs_func(self.info, device="cpu", dtype=self.dtype, requires_grad=self.dtype.is_floating_point or self.dtype.is_complex,
                                            training=training)  # fmt: skip
        limit = count if not self.full else 40 if self.dtype == torch.float32 else 6
        return enumerate(list(itertools.islice((m for m in made if m.forward_input is not None), limit)))

    def module(self, sample, training):
        """Returns the module on the CPU. Lazy modules have their parameters."""
        torch.manual_seed(SEED)
        built = sample.constructor_input
        module = quiet(self.info.module_cls(*built.args, **built.kwargs)).to(self.dtype).train(training)
        if self.info.is_lazy:
            with torch.no_grad(), freeze_rng_state():
                forward = placed((sample.forward_input.args, sample.forward_input.kwargs), "cpu")
                module(*forward[0], **forward[1])
        return module

    def count(self, direction, before, after):
        for name, number in after.items():
            if number > before.get(name, 0):
                self.fell_back[direction][name] = self.fell_back[direction].get(name, 0) + number - before.get(name, 0)

    def differences(self, sample, training, change=None, memory_format=None, count=None, prepare=lambda module: None):
        """Returns (kind, message) pairs for one sample. `change` changes the layout of the inputs; `prepare` is called with the module on xpud."""
        tree = (sample.forward_input.args, sample.forward_input.kwargs)
        if change is not None and (tree := relaid(tree, change)) is None:
            return
        here = self.module(sample, training)
        if memory_format is not None:
            here = here.to(memory_format=memory_format)
        there, identities = copy.deepcopy(here), None
        identities = [id(p) for p in there.parameters()]
        there = there.to(DEVICE)
        if [id(p) for p in there.parameters()] != identities:
            yield "identity", "parameters are other objects after .to()"
        prepare(there)
        exact = copy.deepcopy(here).float() if self.dtype in SIXTEEN_BITS else None
        theirs = Run(here, *placed(tree, "cpu"), self.runs_backward(training))
        mine = Run(there, *placed(tree, DEVICE), self.runs_backward(training), count)
        found = list(self.run_differences(mine, theirs))
        if exact is not None and any(kind == "values" for kind, _ in found):
            exact = Run(exact, *placed(widened(tree, self.dtype), "cpu"), self.runs_backward(training))
            if exact.error is None and is_as_near(mine.compared, theirs.compared, exact.compared, self.dtype):
                found = [(kind, message) for kind, message in found if kind != "values"]
        yield from found

    def runs_backward(self, training):
        return training or self.full

    def run_differences(self, mine, theirs):
        if theirs.error is not None:
            if not lacks_kernel(theirs.error) and self.dtype in (torch.float32, torch.float64) and mine.error is None:
                yield "accepted", f"the CPU raises {brief(theirs.error)}"
            return
        self.compared_samples += 1
        if mine.error is not None:
            yield "refused", brief(mine.error)
            return
        compares = None if self.info.name in RANDOM_MODULES else True
        for what, wanted in theirs.compared.items():
            tolerance = Tolerance(self.dtype, gradient=what.startswith("gradient"), composed=True)
            for kind, message in tree_differences(mine.compared[what], wanted, tolerance, compares):
                yield kind, f"{what}: {message}"


def training(item):
    for index, sample in item.samples(True, 3):
        for kind, message in item.differences(sample, True, count=item.count):
            yield f"sample {index}", kind, message


def evaluation(item):
    for index, sample in item.samples(False, 3):
        for kind, message in item.differences(sample, False, count=item.count):
            yield f"sample {index}", kind, message
        with torch.no_grad():  # enables fast paths of attention and recurrent layers
            for kind, message in item.differences(sample, False, count=item.count):
                yield f"no_grad, sample {index}", kind, message


def layouts(item):
    """Runs with inputs that have gaps, and with module and inputs in channels-last."""
    for index, sample in item.samples(True, 1):
        for kind, message in item.differences(sample, True, strided):
            yield f"strided, sample {index}", kind, message
        ranks = {t.dim() for t in (*leaves(sample.forward_input.args), *item.module(sample, True).parameters())} & {4, 5}
        for rank, memory_format in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if ranks == {rank}:
                for kind, message in item.differences(sample, True, channels_last, memory_format):
                    yield f"channels-last, sample {index}", kind, message


def moves(item):
    """Checks that .to() to xpud and back keeps the identity of parameters and all values, and that a lazy module runs on xpud from the first call."""
    for index, sample in item.samples(True, 1):
        module = item.module(sample, True)
        before, state = [id(p) for p in module.parameters()], copy.deepcopy(module.state_dict())
        module.to(DEVICE)
        if any(t.device.type != DEVICE for t in module.state_dict().values()):
            yield f"sample {index}", "device", "part of the state stayed on the CPU"
        module.to("cpu")
        if [id(p) for p in module.parameters()] != before:
            yield f"sample {index}", "identity", "parameters are other objects after .to() there and back"
        for kind, message in tree_differences(module.state_dict(), state, Tolerance(item.dtype)):
            if kind != "requires_grad":
                yield f"sample {index}", kind, message
        if item.info.is_lazy:
            yield from lazy_differences(item, index, sample)


def lazy_differences(item, index, sample):
    built = sample.constructor_input
    module = item.info.module_cls(*built.args, **built.kwargs).to(item.dtype).to(DEVICE)
    run = Run(module, *placed((sample.forward_input.args, sample.forward_input.kwargs), DEVICE), True)
    if run.error is not None:
        yield f"made on xpud, sample {index}", "refused", brief(run.error)


ASPECTS = {"training": training, "evaluation": evaluation, "layouts": layouts, "moves": moves}


def run_module(name, dtype, full, aspects, announce):
    """Runs a module in a type. Returns failures as dicts, the operators that fell back, and the number of samples that the CPU could run."""
    item = Item(name, dtype, full)
    failures = []
    for aspect in aspects or ASPECTS:
        announce(aspect)
        clear_errors()
        try:
            found = list(ASPECTS[aspect](item))
        except Exception as error:
            if dtype not in item.info.dtypes:  # not supported on the CPU
                continue
            found = [("", "net", brief(error))]
        failures += [{"aspect": aspect, "variant": v, "kind": k, "message": m} for v, k, m in found]
    return {"failures": failures, "fell_back": item.fell_back, "compared": item.compared_samples}
