"""Scaled dot product attention, forward and backward, causal, in bf16, beside plain PyTorch's implementations. Their functions are called directly, because
autograd supports one accelerator in a process."""

import rows
import sides
import torch

aten = torch.ops.aten
BATCH, HEADS, LENGTH = (1, 2, 64) if rows.SMOKE else (4, 16, 2048)
TURNS = 3 if rows.SMOKE else 21
PASSES = 2 if rows.SMOKE else 20  # in a row, so that the wait for the last does not matter
NO_DROPOUT, CAUSAL = 0.0, True


def cpu_flash(q, k, v, g):
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, NO_DROPOUT, CAUSAL)
    return out, *aten._scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, logsumexp, NO_DROPOUT, CAUSAL)


def flash(q, k, v, g):
    out, logsumexp, sum_q, sum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, NO_DROPOUT, CAUSAL)
    return out, *aten._scaled_dot_product_flash_attention_backward(g, q, k, v, out, logsumexp, sum_q, sum_k, max_q, max_k, NO_DROPOUT, CAUSAL, seed, offset)


def cudnn(q, k, v, g):
    out, logsumexp, sum_q, sum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, NO_DROPOUT, CAUSAL, False)
    return out, *aten._scaled_dot_product_cudnn_attention_backward(g, q, k, v, out, logsumexp, seed, offset, None, sum_q, sum_k, max_q, max_k, NO_DROPOUT,
                                                                   CAUSAL)


def xpud(q, k, v, g):
    out, logsumexp, sum_q, sum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_fused_attention_overrideable(q, k, v, None, NO_DROPOUT, CAUSAL)
    gradients = aten._scaled_dot_product_fused_attention_overrideable_backward(g, q, k, v, None, [True, True, True, False], out, logsumexp, sum_q, sum_k, max_q,
                                                                               max_k, NO_DROPOUT, CAUSAL, seed, offset)
    return out, *gradients[:3]


def measure(depth: int) -> None:
    torch.manual_seed(0)
    operands = [torch.randn(BATCH, HEADS, LENGTH, depth, dtype=torch.bfloat16) for _ in range(4)]
    baselines = {"plain PyTorch, flash": flash, "plain PyTorch, cuDNN": cudnn} if sides.ON_GPU else {sides.PLAIN_NAME: cpu_flash}
    ways = {name: (sides.PLAIN, way) for name, way in baselines.items()} | {"xpud": ("xpud", xpud)}

    def work(device: str, way):
        placed = [operand.to(device) for operand in operands]

        def passes():
            for _ in range(PASSES):
                results = way(*placed)
            sides.synchronize(device)
            return results
        return passes

    works = {name: work(*way) for name, way in ways.items()}
    wanted, *got = [[result.float().cpu() for result in passes()] for passes in works.values()]
    for results in got:
        for want, have in zip(wanted, results, strict=True):
            assert (want - have).abs().max() <= 0.03 * want.abs().max(), "the results differ"
    times = rows.interleaved(works, TURNS)
    for name in baselines:
        limit = "ratio <= 1.3" if "cuDNN" in name else "ratio <= 0.8"
        rows.emit(f"attention, forward and backward, depth {depth}", times["xpud"] / PASSES * 1e6, "us", name, times[name] / PASSES * 1e6, sides.target(limit))


def main() -> None:
    for depth in (64, 128):
        measure(depth)


if __name__ == "__main__":
    main()
