"""torch.cuda, torch.xpu and torch.hpu answer for xpud. What xpud does not have raises NotImplementedError.

The modules themselves stay: PyTorch's own code refers to them. Their attributes are replaced.
"""

import contextlib
import functools
import re
import sys
import types
import warnings

import torch

from .. import _C, ranges
from .. import device as xpud
from . import comm
from .devices import translated

# ---- legacy tensor types


class _TensorType(type):
    """Metaclass of torch.cuda.FloatTensor and its relatives: called, it makes a tensor; isinstance asks for device and dtype."""

    def __instancecheck__(cls, value):
        return isinstance(value, torch.Tensor) and value.device.type == "xpud" and value.dtype == cls.dtype

    def __call__(cls, *arguments):
        if not arguments or all(isinstance(each, int) for each in arguments):
            return torch.empty(arguments or 0, dtype=cls.dtype, device="xpud")
        if len(arguments) == 1 and isinstance(arguments[0], torch.Size):
            return torch.empty(arguments[0], dtype=cls.dtype, device="xpud")
        return torch.tensor(*arguments, dtype=cls.dtype, device="xpud")


def _tensor_type(name):
    return _TensorType(name, (), {"dtype": getattr(torch, name).dtype, "xpud_name": f"torch.xpud.{name}", "__module__": "torch.cuda"})


TENSOR_TYPES = ("BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
                "ShortTensor")

# ---- functions that xpud has under another name, or that mean nothing on it


def _availability(original):
    """Returns is_available() of torch.cuda, torch.xpu or torch.hpu, with `original` as PyTorch's own."""

    def is_available():
        """Returns True. Raises RuntimeError if no xpud device can be reached: False would send the program to the CPU silently."""
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch._inductor."):
            return original()  # Inductor asks what it can generate code for
        if not xpud.is_available():
            raise RuntimeError("no xpud device can be reached (see the warning above); start a daemon, or run the program without -m torch_xpud")
        return True

    return is_available


def get_device_capability(device=None):
    """Returns (8, 0): programs ask for it to learn whether bfloat16 is there."""
    xpud.get_device_properties(device)
    return 8, 0


class _Properties:
    """torch.cuda's names for the properties of an xpud device."""

    def __init__(self, own):
        self.__dict__.update(vars(own))
        self.major, self.minor = 8, 0
        self.multi_processor_count = own.compute_units
        self.gcnArchName = own.name  # Inductor identifies a machine by it, also when it compiles for the CPU
        self.has_fp64 = True

    def __repr__(self):
        return "DeviceProperties(" + ", ".join(f"{name}={value!r}" for name, value in vars(self).items()) + ")"


def get_device_properties(device=None):
    return _Properties(xpud.get_device_properties(device))


def _nothing(*arguments, **options):
    """Does nothing: xpud has nothing to do here."""


@contextlib.contextmanager
def _no_context(*arguments, **options):
    yield


OWN = {
    "get_device_capability": get_device_capability,
    "get_device_properties": get_device_properties,
    "memory_cached": xpud.memory_reserved,
    "max_memory_cached": xpud.max_memory_reserved,
    "reset_max_memory_allocated": xpud.reset_peak_memory_stats,
    "reset_max_memory_cached": xpud.reset_peak_memory_stats,
    "ipc_collect": _nothing,
    "get_sync_debug_mode": lambda: 0,
    "has_half": True,
    "_is_in_bad_fork": xpud._is_in_bad_fork,
    "_lazy_init": xpud._lazy_init,
}

KEPT = {"amp", "memory", "random", "streams", "profiler", "nvtx", "graphs", "nccl", "sparse", "tunable", "jiterator", "has_magma", "cudaStatus", "CudaError",
        "DeferredCudaCallError", "get_allocator_backend", "check_error"}  # modules, which are handled below, and what fails by itself


def _refuse(module, name):
    def refuse(*arguments, **options):
        raise NotImplementedError(f"torch.{module}.{name} has no equivalent on xpud")

    refuse.__name__ = name
    return refuse


def _refuse_class(module, name):
    """A class, because programs use such names in isinstance and as bases."""

    def __init__(self, *arguments, **options):
        raise NotImplementedError(f"torch.{module}.{name} has no equivalent on xpud")

    return type(name, (), {"__init__": __init__})


def _own(value):
    """Returns a function of its own for each module: TorchDynamo tells torch.cuda.current_stream and torch.xpu.current_stream apart by identity."""
    if not isinstance(value, types.FunctionType):
        return value

    @functools.wraps(value)
    def forward(*arguments, **options):
        return value(*arguments, **options)

    return forward


def _equivalent(module, name, old):
    if name == "is_available":
        return _availability(old)
    if name in OWN:
        return _own(OWN[name])
    if name in TENSOR_TYPES:
        return _tensor_type(name)
    own = getattr(xpud, name, None)
    if own is not None and (name in xpud.__all__ or name == "init"):
        return _own(own)
    return _refuse_class(module, name) if isinstance(old, type) or name.endswith("Storage") else _refuse(module, name)


def _patch(module_name):
    module = getattr(torch, module_name)
    names = [name for name in (*module.__all__, "_is_in_bad_fork", "_lazy_init") if name not in KEPT and hasattr(module, name)]
    for name in names:
        old = getattr(module, name)
        if isinstance(old, types.ModuleType):
            continue
        new = _equivalent(module_name, name, old)
        setattr(module, name, new)
        for part in ("memory", "random", "streams"):  # torch.cuda.memory.memory_allocated is the same function
            inner = getattr(module, part, None)
            if inner is not None and getattr(inner, name, None) is old:
                setattr(inner, name, new)
    for name in ("_record_memory_history", "_snapshot", "_dump_snapshot"):
        if hasattr(module, "memory"):
            setattr(module.memory, name, getattr(xpud.memory, name))
    return module


def _profiling_of_vendors(cuda):
    """Ranges for a vendor's profiler show in torch.profiler; its other functions do nothing."""
    for name in ("range_push", "range_pop", "range", "mark"):
        setattr(cuda.nvtx, name, getattr(ranges, name))
    for name in ("range_start", "range_end"):
        setattr(cuda.nvtx, name, _nothing)
    for name in ("start", "stop"):
        setattr(cuda.profiler, name, _nothing)
    cuda.profiler.profile = _no_context
    torch.autograd.profiler.emit_nvtx = _no_context


def _libraries():
    """A program chooses between cuSOLVER and MAGMA, or cuBLAS and others. The choice has no effect here."""

    def kept(original):
        @functools.wraps(original)
        def preferred(backend=None):
            return original()

        return preferred

    for name in ("preferred_linalg_library", "preferred_blas_library"):
        setattr(torch.backends.cuda, name, kept(getattr(torch.backends.cuda, name)))


def _mixed_precision(module):
    """torch.xpu.amp and torch.hpu.amp, which the vendors' packages had as torch.cuda.amp is."""
    name = f"{module.__name__}.amp"

    class autocast(torch.autocast):  # noqa: N801  named as in torch.cuda.amp
        def __init__(self, enabled=True, dtype=None, cache_enabled=True):
            super().__init__("xpud", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    module.amp = sys.modules[name] = types.ModuleType(name, "Mixed precision on xpud")
    vars(module.amp).update(autocast=autocast, GradScaler=functools.partial(torch.amp.GradScaler, "xpud"),
                            custom_fwd=functools.partial(torch.amp.custom_fwd, device_type="xpud"),
                            custom_bwd=functools.partial(torch.amp.custom_bwd, device_type="xpud"))


def _process_groups():
    """Backends of the vendors mean xpud's, which has one process; names in maps such as "cpu:gloo,cuda:nccl" do, too."""
    dist = torch.distributed
    if not dist.is_available():
        return

    def named(backend):
        if not isinstance(backend, str):
            return backend
        backend = re.sub(r"\b(nccl|xccl|ccl|hccl)\b", "xpud", backend)
        return re.sub(r"\b(cuda|xpu|hpu):", "xpud:", backend)

    for function in ("init_process_group", "new_group"):
        original = getattr(dist, function)

        @functools.wraps(original)
        def call(*arguments, original=original, **options):
            if "backend" in options:
                options["backend"] = named(options["backend"])
            return original(*(named(translated(value)) if isinstance(value, str) else translated(value) for value in arguments), **{
                name: translated(value) for name, value in options.items()})

        setattr(dist, function, call)
        setattr(dist.distributed_c10d, function, call)
    dist.is_nccl_available = lambda: True
    from torch.distributed import device_mesh

    original_mesh = device_mesh.init_device_mesh

    @functools.wraps(original_mesh)
    def init_device_mesh(device_type, *arguments, **options):
        return original_mesh(translated(device_type), *arguments, **options)

    device_mesh.init_device_mesh = init_device_mesh
    if getattr(dist, "init_device_mesh", None) is original_mesh:
        dist.init_device_mesh = init_device_mesh


def _profiler():
    """Activities of other devices are xpud's. A torch before 2.13 records those of no such device: then the CPU's alone, with a warning."""
    profiler = torch.profiler.profiler._KinetoProfile
    original = profiler.__init__
    others = {getattr(torch.profiler.ProfilerActivity, name) for name in ("CUDA", "XPU", "HPU") if hasattr(torch.profiler.ProfilerActivity, name)}

    def ours(activity):
        """Returns the activity, or None for one that is not recorded. An activity may be the key of a dict with its options."""
        if isinstance(activity, dict):
            return {ours(each): options for each, options in activity.items() if ours(each) is not None}
        if activity not in others:
            return activity
        return torch.profiler.ProfilerActivity.PrivateUse1 if _C.records_activities else None

    @functools.wraps(original)
    def __init__(self, *, activities=None, **options):
        if activities is not None:
            wanted = list(activities)
            activities = [each for each in map(ours, wanted) if each] or [torch.profiler.ProfilerActivity.CPU]
            if len(activities) < len(wanted):
                warnings.warn("torch_xpud: with torch before 2.13 the profiler records the CPU only, where operators on xpud take the time of "
                              "sending them", stacklevel=3)
        original(self, activities=activities, **options)

    profiler.__init__ = __init__


def _operator_profiler():
    """The older profiler, torch.autograd.profiler.profile: `use_cuda`, and the other devices' names for `use_device`, are xpud."""
    profiler = torch.autograd.profiler.profile
    original = profiler.__init__

    @functools.wraps(original)
    def __init__(self, enabled=True, *, use_cuda=False, use_device=None, **options):
        device = "xpud" if use_cuda else translated(use_device)
        original(self, enabled, use_device=device, **options)

    profiler.__init__ = __init__


def _make_hpu():
    """Creates torch.hpu, which PyTorch does not have."""
    torch.hpu = sys.modules["torch.hpu"] = types.ModuleType("torch.hpu", "torch.hpu, answered by xpud")
    torch.hpu.__all__ = [*xpud.__all__, *OWN, "is_available", "random"]
    vars(torch.hpu).update({name: _own(getattr(xpud, name)) for name in xpud.__all__ if hasattr(xpud, name)} | OWN)
    torch.hpu.is_available = _availability(lambda: False)
    torch.hpu.random = xpud


def install(names):
    """Makes the modules of the devices `names` answer for xpud."""
    for name in names:
        _make_hpu() if name == "hpu" else _patch(name)
        if name != "cuda":
            _mixed_precision(getattr(torch, name))
    _profiling_of_vendors(torch.cuda)
    _libraries()
    comm.install()
    _process_groups()
    _profiler()
    _operator_profiler()
