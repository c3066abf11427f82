"""`generate` of transformers, 64 new tokens after a prompt of 16, greedy and sampled, in bf16, beside plain PyTorch on the same GPU."""

import copy
from collections.abc import Callable

import models
import rows
import sides
import torch
import transformers as hf
from torch import nn

PROMPT, NEW = (4, 4) if rows.SMOKE else (16, 64)
TURNS = 2 if rows.SMOKE else 9
SAMPLED = {"do_sample": True, "top_k": 50, "top_p": 0.9, "temperature": 0.8}


def gpt2() -> nn.Module:
    return hf.GPT2LMHeadModel(hf.GPT2Config(**({"n_layer": 2, "n_embd": 64, "n_head": 4} if rows.SMOKE else {}), bos_token_id=None, eos_token_id=None))


def measure(name: str, build: Callable[[], nn.Module], greedy: str, sampled: str) -> None:
    torch.manual_seed(0)
    host = build().eval()
    prompt = torch.randint(0, 1000, (1, PROMPT))
    both = {device: (copy.deepcopy(host).to(device, torch.bfloat16), prompt.to(device)) for device in sides.DEVICES}

    def generation(device: str, options: dict):
        model, ids = both[device]

        def run() -> torch.Tensor:
            tokens = model.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=NEW, max_new_tokens=NEW, pad_token_id=0, **options)
            sides.synchronize(device)
            return tokens
        return run

    with torch.inference_mode():  # tokens are not compared: of random weights' near ties, one that differs changes all that follow
        plain, xpud = (model(ids).logits.float().cpu().flatten() for model, ids in both.values())
    cosine = torch.nn.functional.cosine_similarity(plain, xpud, dim=0).item()
    assert cosine > 0.99, f"{name}: the logits differ: cosine {cosine}"
    for way, options, target in (("greedy", {"do_sample": False}, greedy), ("sampled", SAMPLED, sampled)):
        works = {device: generation(device, options) for device in sides.DEVICES}
        for work in works.values():
            for _ in range(1 if rows.SMOKE else 3):
                assert work().shape == (1, PROMPT + NEW)
        times = rows.interleaved(works, TURNS)
        rows.emit(f"{name}, {NEW} tokens, {way}", times["xpud"] * 1e3, "ms", sides.PLAIN_NAME, times[sides.PLAIN] * 1e3, sides.target(target))


def main() -> None:
    measure("GPT-2", gpt2, "ratio <= 0.45", "ratio <= 0.5")
    measure("Llama-like, 8 layers", models.llama, "ratio <= 0.27", "ratio <= 0.35")


if __name__ == "__main__":
    main()
