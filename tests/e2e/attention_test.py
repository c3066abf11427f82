"""Attention never materialises its scores."""

import unittest

from harness import DaemonTest


class Attention(DaemonTest):
    def test_long_attention_needs_no_memory_beyond_its_operands(self):
        heads, length, depth = 8, 4096, 64
        client = self.client(
            f"q = torch.randn(1, {heads}, {length}, {depth}, device='xpud'); k = torch.randn_like(q); v = torch.randn_like(q)\n"
            "out = torch.nn.functional.scaled_dot_product_attention(q, k, v).cpu()\n"
            "say(torch.isfinite(out).all().item()); sys.stdin.readline()")
        self.assertEqual(client.hear(), "True")
        operands = 4 * heads * length * depth * 4
        scores = heads * length * length * 4
        peak = self.daemon.devices()[0]["pool_peak_bytes"]
        self.assertLess(peak, operands * 1.1, f"the scores would be {scores} bytes")
        client.tell()
        client.finish()


if __name__ == "__main__":
    unittest.main()
