"""accelerate chooses devices from a list that lacks xpud, and ends in the CPU: without this, Trainer and Accelerator train there silently."""

import os

import torch

from .adapt import available, default_device, must_widen, replace


def _processes():
    return max(int(os.environ.get(name) or 1) for name in ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"))


def state(module):
    """accelerate.state: the default device; a refusal of several processes, which otherwise train next to each other without exchanging gradients."""

    def choose(original):
        return lambda self: default_device() or original(self)

    def prepare(original):
        def _prepare_backend(self, cpu=False, *arguments, **options):
            if not cpu and _processes() > 1 and available():
                raise NotImplementedError(
                    f"accelerate was started for {_processes()} processes, but xpud has no collectives between processes yet; start one process, "
                    "or use the CPU with Accelerator(cpu=True) or TrainingArguments(use_cpu=True)")
            return original(self, cpu, *arguments, **options)

        return _prepare_backend

    replace(module.PartialState, "default_device", choose)
    replace(module.PartialState, "_prepare_backend", prepare)


def modeling(module):
    """accelerate.utils.modeling: the memory of each device, for device_map="auto"; the move of a weight; the scaler of float16 training."""

    def measure(original):
        def get_max_memory(max_memory=None):
            if max_memory is not None or not available():
                return original(max_memory)
            own = {index: torch.xpud.mem_get_info(index)[0] for index in range(torch.xpud.device_count())}
            return own | {key: value for key, value in original(None).items() if not isinstance(key, int)}

        return get_max_memory

    def scaler(original):
        def get_grad_scaler(distributed_type=None, **options):
            if distributed_type == module.DistributedType.FSDP or not available():
                return original(distributed_type, **options)
            return torch.amp.GradScaler("xpud", **options)

        return get_grad_scaler

    def by_number(original):
        def set_module_tensor_to_device(module, tensor_name, device, *arguments, **options):
            if str(device).startswith("xpud"):  # it contains "xpu", and is taken for that
                index = torch.device(device).index
                device = torch.xpud.current_device() if index is None else index
            return original(module, tensor_name, device, *arguments, **options)

        return set_module_tensor_to_device

    replace(module, "set_module_tensor_to_device", by_number)
    replace(module, "get_max_memory", measure)
    replace(module, "get_grad_scaler", scaler)


def accelerator(module):
    """accelerate.accelerator: float16 mixed precision, refused for devices that are not in a list."""
    must_widen(module.Accelerator.__init__)


def _random_states(folder, process_index):
    return os.path.join(folder, f"random_states_xpud_{process_index}.pkl")


def checkpointing(module):
    """accelerate.checkpointing: the random state of xpud is saved beside those of other devices."""

    def save(original):
        def save_accelerator_state(output_dir, model_states, optimizers, schedulers, dataloaders, process_index, *arguments, **options):
            result = original(output_dir, model_states, optimizers, schedulers, dataloaders, process_index, *arguments, **options)
            if torch.xpud.is_initialized():
                torch.save(torch.xpud.get_rng_state_all(), _random_states(output_dir, process_index))
            return result

        return save_accelerator_state

    def load(original):
        def load_accelerator_state(input_dir, models, optimizers, schedulers, dataloaders, process_index, *arguments, **options):
            result = original(input_dir, models, optimizers, schedulers, dataloaders, process_index, *arguments, **options)
            path = _random_states(input_dir, process_index)
            if os.path.exists(path) and available():
                torch.xpud.set_rng_state_all(torch.load(path))
            return result

        return load_accelerator_state

    replace(module, "save_accelerator_state", save)
    replace(module, "load_accelerator_state", load)
