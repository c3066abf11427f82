"""Models of transformers, and a diffusion U-Net, with random weights and inputs, for the benchmarks of GPUs and of the CPU. In a smoke run they are small."""

import dataclasses
import os
from collections.abc import Callable

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import rows  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers as hf  # noqa: E402
from torch import nn  # noqa: E402

Inputs = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Workload:
    """`build` makes the model on the host. `inputs` makes those of a batch; with labels a forward returns a loss."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]


def tokens(batch: int, length: int, vocabulary: int, labelled: bool) -> Inputs:
    ids = torch.randint(0, vocabulary, (batch, length))
    return {"input_ids": ids} | ({"labels": ids.clone()} if labelled else {})


def images(batch: int, side: int, labelled: bool) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, side, side)} | ({"labels": torch.randint(0, 2, (batch,))} if labelled else {})


def minilm(batch: int, length: int) -> Workload:
    """Of MiniLM's shape."""
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4} if rows.SMOKE \
        else {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12}
    batch, length = (2, 16) if rows.SMOKE else (batch, length)
    return Workload(f"MiniLM b{batch} x {length}", lambda: hf.BertModel(hf.BertConfig(**shape), add_pooling_layer=False),
                    lambda: tokens(batch, length, 30522, labelled=False))


def bert(batch: int, length: int, labelled: bool = True) -> Workload:
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4} if rows.SMOKE else {}
    batch, length = (2, 16) if rows.SMOKE else (batch, length)
    return Workload(f"BERT-base b{batch} x {length}", lambda: hf.BertForMaskedLM(hf.BertConfig(**shape)),
                    lambda: tokens(batch, length, 30522, labelled))


def small_bert() -> Workload:
    """Of a size that a CPU trains in fractions of a second."""
    shape = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "vocab_size": 1000}
    return Workload("BERT 2 x 256 b8 x 64", lambda: hf.BertForMaskedLM(hf.BertConfig(**shape)), lambda: tokens(8, 64, 1000, labelled=True))


def gpt2(batch: int, length: int, labelled: bool) -> Workload:
    shape = {"n_layer": 2, "n_embd": 64, "n_head": 4} if rows.SMOKE else {}
    batch, length = (2, 16) if rows.SMOKE else (batch, length)
    return Workload(f"GPT-2 b{batch} x {length}", lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**shape)),
                    lambda: tokens(batch, length, 50257, labelled))


def llama() -> nn.Module:
    """A decoder in Llama's style with 8 layers of 1,024: rotary embeddings, SwiGLU, grouped keys and values."""
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2} if rows.SMOKE \
        else {"num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**shape, vocab_size=32000, max_position_embeddings=1024, bos_token_id=None, eos_token_id=None))


def vit(batch: int, labelled: bool) -> Workload:
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "image_size": 32} if rows.SMOKE else {}
    batch = 2 if rows.SMOKE else batch
    return Workload(f"ViT-B/16 b{batch}", lambda: hf.ViTForImageClassification(hf.ViTConfig(**shape)),
                    lambda: images(batch, 32 if rows.SMOKE else 224, labelled))


def resnet(batch: int, labelled: bool) -> Workload:
    shape = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8], "embedding_size": 8} if rows.SMOKE else {}
    batch = 2 if rows.SMOKE else batch
    return Workload(f"ResNet-50 b{batch}", lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**shape)),
                    lambda: images(batch, 32 if rows.SMOKE else 224, labelled))


def whisper(batch: int) -> Workload:
    shape = {"encoder_layers": 2, "d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "max_source_positions": 50} if rows.SMOKE \
        else {"encoder_layers": 12, "d_model": 768, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072}  # small
    frames = 100 if rows.SMOKE else 3000
    return Workload(f"Whisper-small encoder b{batch}", lambda: hf.models.whisper.modeling_whisper.WhisperEncoder(hf.WhisperConfig(**shape)),
                    lambda: {"input_features": torch.randn(batch, 80, frames)})


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, out: int, embedding: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(embedding, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class SelfAttention(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, channels), nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x):
        batch, channels, height, width = x.shape
        rows_ = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (-1, 64)).transpose(1, 2) for part in self.qkv(rows_).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y).transpose(1, 2).view(batch, channels, height, width)


class UNet(nn.Module):
    """The usual diffusion U-Net: residual blocks with group norm and SiLU, attention at the lower resolutions."""

    def __init__(self, width: int, multiples: tuple[int, ...]):
        super().__init__()
        embedding = 4 * width
        self.time = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up, skips, channels = nn.ModuleList(), nn.ModuleList(), [width], width
        for level, multiple in enumerate(multiples):
            for _ in range(2):
                self.down.append(nn.ModuleList([ResidualBlock(channels, width * multiple, embedding),
                                                SelfAttention(width * multiple) if level else nn.Identity()]))
                channels = width * multiple
                skips.append(channels)
            if level + 1 < len(multiples):
                self.down.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1))
                skips.append(channels)
        self.middle = nn.ModuleList([ResidualBlock(channels, channels, embedding), SelfAttention(channels), ResidualBlock(channels, channels, embedding)])
        for level, multiple in reversed(list(enumerate(multiples))):
            for _ in range(3):
                self.up.append(nn.ModuleList([ResidualBlock(channels + skips.pop(), width * multiple, embedding),
                                              SelfAttention(width * multiple) if level else nn.Identity()]))
                channels = width * multiple
            if level:
                self.up.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.last = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, sample, time):
        time = self.time(time)
        x = self.first(sample)
        skips = [x]
        for layer in self.down:
            x = layer(x) if isinstance(layer, nn.Conv2d) else layer[1](layer[0](x, time))
            skips.append(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, time)), time)
        for layer in self.up:
            if isinstance(layer, nn.Conv2d):
                x = layer(F.interpolate(x, scale_factor=2, mode="nearest"))
            else:
                x = layer[1](layer[0](torch.cat([x, skips.pop()], dim=1), time))
        return self.last(x)


def unet(batch: int) -> Workload:
    width, multiples, side = (64, (1, 2), 8) if rows.SMOKE else (320, (1, 2, 4), 64)
    return Workload(f"U-Net b{batch}", lambda: UNet(width, multiples),
                    lambda: {"sample": torch.randn(batch, 4, side, side), "time": torch.randn(batch, width)})


@dataclasses.dataclass
class Loss:
    loss: torch.Tensor


class Recurrent(nn.LSTM):
    """With the mean square of its outputs as the loss."""

    def forward(self, x):
        return Loss(super().forward(x)[0].float().square().mean())


def lstm(labelled: bool) -> Workload:
    steps, batch, size, layers = (4, 2, 32, 2) if rows.SMOKE else (64, 32, 512, 2)
    module, name = (Recurrent, "x") if labelled else (nn.LSTM, "input")
    return Workload(f"LSTM {layers} x {size}, b{batch} x {steps}", lambda: module(size, size, layers), lambda: {name: torch.randn(steps, batch, size)})


# By name, for trainer.py: a forward returns an object with a loss.
TRAINED = {"bert": bert(16, 128), "gpt2": gpt2(4, 512, labelled=True), "vit": vit(32, labelled=True), "resnet": resnet(32, labelled=True),
           "lstm": lstm(labelled=True)}
TRAINED_ON_CPU = {"small": small_bert()}
# By name, for worker.py.
SERVED = {"gpt2": gpt2(4, 512, labelled=False)}
