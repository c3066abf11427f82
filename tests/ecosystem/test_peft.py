"""peft: adapters are trained, merged, saved and loaded."""

import tempfile
import unittest

import peft
import torch
from program import ProgramTest, seed
from test_transformers import llama

TOKENS = torch.tensor([[2, 5, 7, 9, 11, 13], [2, 6, 8, 10, 12, 3]])


def train(device, config, steps=5):
    seed()
    model = peft.get_peft_model(llama(), config).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=TOKENS.to(device), labels=TOKENS.to(device)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, torch.stack(losses)


class PeftTest(ProgramTest):
    def lora(self, **options):
        return peft.LoraConfig(**dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.0, task_type="CAUSAL_LM") | options)

    def test_lora(self):
        def program(device):
            model, losses = train(device, self.lora())
            before = model(TOKENS.to(device)).logits
            merged = model.merge_and_unload()
            return losses, before, merged(TOKENS.to(device)).logits
        self.check(program, 1e-3)

    def test_dora(self):
        self.check(lambda device: train(device, self.lora(use_dora=True), 3)[1], 1e-3)

    def test_ia3_and_prompts(self):
        for config in (peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"),
                       peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")):
            with self.subTest(type(config).__name__):
                self.check(lambda device: train(device, config, 3)[1], 1e-3)

    def test_the_default_device_is_xpud(self):
        self.assertEqual(peft.utils.infer_device(), "xpud")

    def test_an_adapter_is_saved_and_loaded(self):
        def program(device):
            model, _ = train(device, self.lora(), 2)
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                seed()
                loaded = peft.PeftModel.from_pretrained(llama().to(device), folder, torch_device=device)
            return (loaded(TOKENS.to(device)).logits - model(TOKENS.to(device)).logits).abs().max()
        self.check(program, 1e-6)


if __name__ == "__main__":
    unittest.main()
