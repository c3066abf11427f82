"""Lightning knows devices through Accelerator classes. This registers one for xpud, which accelerator="auto" and "gpu" choose if there is a device.

Lightning exists twice: as `lightning` and as `pytorch_lightning` with `lightning_fabric`. Each function here is called with a module of either.
"""

import torch

from .. import translate
from .adapt import available, must_widen, replace


def _make_accelerator(base, parse):
    class XpudAccelerator(base):
        """An xpud device for Lightning."""

        def setup_device(self, device):
            """Makes `device` current. Raises ValueError for a device of another type."""
            if device.type != "xpud":
                raise ValueError(f"Device should be xpud, got {device} instead.")
            torch.xpud.set_device(device)

        def teardown(self):
            pass

        def get_device_stats(self, device):
            return torch.xpud.memory_stats(device)

        @staticmethod
        def parse_devices(devices):
            """Returns indices of devices: all of them for -1, "-1" and "auto", the first N for a number N, otherwise the listed ones."""
            return parse(devices)

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device("xpud", index) for index in parse(devices)]

        @staticmethod
        def auto_device_count():
            return torch.xpud.device_count()

        @staticmethod
        def is_available():
            return available()

        @staticmethod
        def name():
            return "xpud"

        @classmethod
        def register_accelerators(cls, accelerator_registry):
            accelerator_registry.register(cls.name(), cls, description=cls.__name__)

    return XpudAccelerator


def _parse_devices(devices):
    count = torch.xpud.device_count()
    if devices in (-1, "-1", "auto"):
        return list(range(count))
    if isinstance(devices, str):
        indices = [int(part) for part in devices.split(",") if part.strip()]
        indices = list(range(indices[0])) if len(indices) == 1 and "," not in devices else indices
    else:
        indices = list(range(devices)) if isinstance(devices, int) else list(devices)
    if not indices or not all(0 <= index < count for index in indices) or len(set(indices)) != len(indices):
        raise ValueError(f"devices={devices!r} asks for xpud devices {indices}, but there are {count}")
    return indices


def accelerators(module):
    """lightning.pytorch.accelerators, lightning.fabric.accelerators: registers the class."""
    registry = getattr(module, "AcceleratorRegistry", None)
    if registry is None:
        registry = module.ACCELERATOR_REGISTRY
    module.XpudAccelerator = _make_accelerator(module.Accelerator, _parse_devices)
    module.XpudAccelerator.register_accelerators(registry)


def connector(module):
    """The module of _AcceleratorConnector (Trainer) or _Connector (Fabric): the choice of accelerator, strategy and precision."""
    connector = getattr(module, "_AcceleratorConnector", None) or module._Connector

    def prefer(original):
        return lambda *self: "xpud" if available() else original(*self)

    def name_the_flag(original):
        def _set_parallel_devices_and_init_accelerator(self):
            if self._accelerator_flag == "cuda" and translate.requested() and available():
                self._accelerator_flag = "xpud"
            original(self)
            if self.accelerator.__class__.name() == "xpud":  # also for an instance, which the conditions below compare with names
                self._accelerator_flag = "xpud"

        return _set_parallel_devices_and_init_accelerator

    replace(connector, "_choose_auto_accelerator", prefer)
    replace(connector, "_choose_gpu_accelerator_backend", prefer)
    replace(connector, "_set_parallel_devices_and_init_accelerator", name_the_flag)
    must_widen(connector._choose_strategy)  # otherwise a single device is the CPU
    must_widen(connector._check_and_init_precision, ("cpu", "mps"))  # otherwise autocast is for cuda


def ddp(module):
    """lightning.pytorch.strategies.ddp, lightning.fabric.strategies.ddp: with device ids, DistributedDataParallel is wrapped on a stream of torch.cuda."""
    strategy = module.DDPStrategy

    def without_cuda(original):
        return lambda self: None if self.root_device.type == "xpud" else original(self)

    names = [name for name in ("determine_ddp_device_ids", "_determine_ddp_device_ids") if hasattr(strategy, name)]
    if not names:
        raise AttributeError(f"{strategy.__module__}.DDPStrategy has no determine_ddp_device_ids")
    for name in names:
        replace(strategy, name, without_cuda)


def seeds(module):
    """lightning.fabric.utilities.seed: the random state of xpud, which a Trainer's checkpoints and isolate_rng keep."""

    def collect(original):
        def _collect_rng_states(*arguments, **options):
            states = original(*arguments, **options)
            if torch.xpud.is_initialized():
                states["torch.xpud"] = torch.xpud.get_rng_state_all()
            return states

        return _collect_rng_states

    def restore(original):
        def _set_rng_states(rng_state_dict):
            original(rng_state_dict)
            if "torch.xpud" in rng_state_dict and available():
                torch.xpud.set_rng_state_all(rng_state_dict["torch.xpud"])

        return _set_rng_states

    replace(module, "_collect_rng_states", collect)
    replace(module, "_set_rng_states", restore)
