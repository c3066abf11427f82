"""transformers: the default device of Trainer and of pipelines, bfloat16 training, and the random state in checkpoints."""

import os

import torch

from .adapt import available, default_device, replace


def pipeline(module):
    """transformers.pipelines.base: a pipeline without `device`, or with a number, uses the CPU if it knows no accelerator."""

    def construct(original):
        def __init__(self, model, *arguments, device=None, **options):
            placed = getattr(model, "hf_device_map", None) is not None
            if not placed and (device is None or (isinstance(device, int) and device >= 0)):
                device = default_device(device or 0) or device
            if isinstance(device, str) and device.startswith("xpud"):  # as a string it contains "xpu", and is taken for that
                device = torch.device(device)
            original(self, model, *arguments, device=device, **options)

        return __init__

    replace(module.Pipeline, "__init__", construct)


def arguments(module):
    """transformers.training_args: the device of Trainer, which looks for devices itself where accelerate finds no distributed set-up."""

    def choose(original):
        def _setup_devices(self):
            device = original(self)
            chosen = self.use_cpu or "ACCELERATE_TORCH_DEVICE" in os.environ or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
            # Where PyTorch has CUDA too, accelerate chooses xpud, and model and inputs must be on the same device.
            if device.type not in ("cpu", "cuda") or chosen or not available():
                return device
            self._n_gpu = 1
            torch.xpud.set_device(0)
            return torch.device("xpud", 0)

        return _setup_devices

    replace(module.TrainingArguments, "_setup_devices", choose)


def imports(module):
    """transformers.utils.import_utils: TrainingArguments(bf16=True) asks whether the accelerator has bfloat16."""
    replace(module, "is_torch_bf16_gpu_available", lambda original: lambda: available() or original())


def modeling(module):
    """transformers.modeling_utils: a warm-up of caching allocators, which would allocate a model's memory twice: the daemon caches for all clients."""

    def skip(original):
        def caching_allocator_warmup(model, expanded_device_map, *arguments, **options):
            others = {name: device for name, device in expanded_device_map.items() if not _is_xpud(device)}
            return original(model, others, *arguments, **options) if others else None

        return caching_allocator_warmup

    replace(module, "caching_allocator_warmup", skip)


def _is_xpud(device):
    if isinstance(device, int):
        return available()
    return str(device).partition(":")[0] == "xpud"


def _random_state(trainer, folder):
    return os.path.join(folder, f"rng_state_xpud_{trainer.args.process_index}.pth")


def trainer(module):
    """transformers.trainer: the random state of xpud is saved beside those of other devices."""

    def save(original):
        def _save_rng_state(self, output_dir):
            original(self, output_dir)
            if torch.xpud.is_initialized():
                torch.save(torch.xpud.get_rng_state_all(), _random_state(self, output_dir))

        return _save_rng_state

    def load(original):
        def _load_rng_state(self, checkpoint):
            original(self, checkpoint)
            path = _random_state(self, checkpoint) if checkpoint is not None else ""
            if os.path.exists(path) and available():
                torch.xpud.set_rng_state_all(torch.load(path))

        return _load_rng_state

    replace(module.Trainer, "_save_rng_state", save)
    replace(module.Trainer, "_load_rng_state", load)
