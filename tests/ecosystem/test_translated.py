"""Programs that use packages and were written for cuda, under `python -m torch_xpud`."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).parent


class TranslatedTest(unittest.TestCase):
    def run_program(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "for_cuda.py")
            path.write_text(textwrap.dedent(text))
            done = subprocess.run([sys.executable, "-W", "ignore", "-m", "torch_xpud", path], capture_output=True, text=True, cwd=folder, timeout=300,
                                  env=os.environ | {"PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_transformers(self):
        self.run_program("""
            import torch, transformers
            from safetensors.torch import load_file
            from test_transformers import classifier, examples, gpt2, llama, tokenizer
            assert torch.cuda.is_available()
            llama().save_pretrained("model")
            for place in ("cuda", "auto", "cuda:0", 0, {"": "cuda"}):
                model = transformers.AutoModelForCausalLM.from_pretrained("model", device_map=place)
                assert model.device.type == "cuda" and all(p.is_cuda for p in model.parameters()), place
            assert all(value.is_cuda for value in load_file("model/model.safetensors", device="cuda:0").values())
            inputs = tokenizer()(["the cat"], return_tensors="pt").to("cuda")
            assert model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=3).device.type == "cuda"
            assert transformers.pipeline("text-generation", model=gpt2(), tokenizer=tokenizer(), device="cuda")("the", max_new_tokens=2)
            arguments = transformers.TrainingArguments(output_dir="out", max_steps=2, fp16=True, report_to=[], save_strategy="steps", save_steps=2)
            trainer = transformers.Trainer(model=classifier(), args=arguments, train_dataset=examples())
            trainer.train()
            assert trainer.args.device.type == "cuda" and next(trainer.model.parameters()).is_cuda and trainer.accelerator.scaler.is_enabled()
            """)

    def test_lightning_and_others(self):
        self.run_program("""
            import lightning, timm, torch, torchvision
            from test_lightning import Classifier, data
            for accelerator in ("gpu", "cuda", "auto"):
                trainer = lightning.Trainer(accelerator=accelerator, devices=1, max_epochs=1, precision="16-mixed", logger=False, enable_checkpointing=False,
                                            enable_progress_bar=False, enable_model_summary=False)
                trainer.fit(Classifier(), data())
                assert trainer.strategy.root_device.type == "cuda" and trainer.precision_plugin.scaler.is_enabled(), accelerator
            assert torchvision.ops.nms(torch.rand(4, 4).cuda(), torch.rand(4).cuda(), 0.5).is_cuda
            assert timm.create_model("resnet10t").cuda()(torch.rand(2, 3, 32, 32).cuda()).is_cuda and timm.utils.NativeScaler()._scaler.is_enabled()
            """)


if __name__ == "__main__":
    unittest.main()
