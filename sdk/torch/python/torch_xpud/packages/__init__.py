"""What other packages need in order to use xpud. Each is adapted when it is imported, and never imported here.

A row of WORKAROUNDS names a module, and the function that is called with it once it has been executed. README.md of sdk/torch lists them with their
reasons. A function changes nothing for other devices. If the place that it adapts is gone, it raises, and the user gets one warning with the
package's version.
"""

import functools
import importlib

from .. import imports

WORKAROUNDS = (
    ("safetensors", "safetensors.package"),
    ("torchvision.extension", "torchvision.extension"),
    ("accelerate.state", "accelerate.state"),
    ("accelerate.utils.modeling", "accelerate.modeling"),
    ("accelerate.accelerator", "accelerate.accelerator"),
    ("accelerate.checkpointing", "accelerate.checkpointing"),
    ("transformers.pipelines.base", "transformers.pipeline"),
    ("transformers.utils.import_utils", "transformers.imports"),
    ("transformers.modeling_utils", "transformers.modeling"),
    ("transformers.training_args", "transformers.arguments"),
    ("transformers.trainer", "transformers.trainer"),
    ("sentence_transformers.util.environment", "choices.sentence_transformers"),
    ("peft.utils.other", "choices.peft"),
    ("torch_geometric.device", "choices.torch_geometric"),
    ("torchao.utils", "choices.torchao"),
    ("lightning.pytorch.accelerators", "lightning.accelerators"),
    ("lightning.fabric.accelerators", "lightning.accelerators"),
    ("lightning.pytorch.trainer.connectors.accelerator_connector", "lightning.connector"),
    ("lightning.fabric.connector", "lightning.connector"),
    ("lightning.fabric.utilities.seed", "lightning.seeds"),
    ("lightning.pytorch.strategies.ddp", "lightning.ddp"),
    ("lightning.fabric.strategies.ddp", "lightning.ddp"),
    ("pytorch_lightning.strategies.ddp", "lightning.ddp"),
    ("lightning_fabric.strategies.ddp", "lightning.ddp"),
    ("pytorch_lightning.accelerators", "lightning.accelerators"),
    ("lightning_fabric.accelerators", "lightning.accelerators"),
    ("pytorch_lightning.trainer.connectors.accelerator_connector", "lightning.connector"),
    ("lightning_fabric.connector", "lightning.connector"),
    ("lightning_fabric.utilities.seed", "lightning.seeds"),
)


def _adapt(function_name, module):
    file, _, function = function_name.rpartition(".")
    getattr(importlib.import_module(f"{__name__}.{file}"), function)(module)


def install():
    imports.install()
    for module, function in WORKAROUNDS:
        imports.when_imported(module, functools.partial(_adapt, function))
