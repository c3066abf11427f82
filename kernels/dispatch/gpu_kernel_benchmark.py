"""What gpu_kernel_benchmark prints, for torch on the same GPU: "name dtype microseconds GB/s"."""

import torch
import torch.nn.functional as F


def layer_norm_backward(m, n):
    mean, rstd = torch.zeros(m, 1, device="cuda"), torch.ones(m, 1, device="cuda")
    return lambda a, b, w, out: torch.ops.aten.native_layer_norm_backward(a, b, [n], mean, rstd, w, w, [True] * 3)


def cases(m, n):
    """(name, inputs' shapes, f(inputs, out), bytes: shapes counted beside the inputs)."""
    matrix, row, column, vector = (m, n), (1, n), (m, 1), (n,)
    return [
        ("add", [matrix, matrix], matrix, lambda a, b, out: torch.add(a, b, out=out)),
        ("add_bias", [matrix, row], matrix, lambda a, b, out: torch.add(a, b, out=out)),
        ("gelu", [matrix], matrix, lambda a, out: torch.ops.aten.gelu.out(a, out=out)),
        ("sum0", [matrix], row, lambda a, out: torch.sum(a, 0, keepdim=True, out=out)),
        ("sum1", [matrix], column, lambda a, out: torch.sum(a, 1, keepdim=True, out=out)),
        ("softmax0", [matrix], matrix, lambda a, out: torch.softmax(a, 0, out=out)),
        ("softmax1", [matrix], matrix, lambda a, out: torch.softmax(a, 1, out=out)),
        ("layer_norm", [matrix, vector, vector], matrix, lambda a, w, b, out: F.layer_norm(a, (n,), w, b, 1e-5)),
        ("softmax_backward1", [matrix, matrix], matrix, lambda a, b, out: torch.ops.aten._softmax_backward_data.out(a, b, 1, a.dtype, grad_input=out)),
        ("layer_norm_backward", [matrix, matrix, vector], matrix, layer_norm_backward(m, n)),
        ("copy", [matrix], matrix, lambda a, out: out.copy_(a)),
        ("transpose", [(n, m)], matrix, lambda a, out: out.copy_(a.t())),
        ("embedding", [(30000, n)], matrix, None),
    ]


def order_cases(m, n):
    """(name, f(inputs))"""
    return [("sort", lambda a: torch.sort(a, 1)), ("topk50", lambda a: torch.topk(a, 50, 1))]


def measure(run, sets, times):
    """Microseconds of one run, from a graph of `times`, the best of five."""
    for s in sets:
        run(s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(times):
            run(sets[i % len(sets)])
    best = None
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        took = begin.elapsed_time(end) * 1000 / times
        best = took if best is None else min(best, took)
    return best


def order(dtype, m, n):
    for name, function in order_cases(m, n):
        sets = [(torch.randn(m, n, device="cuda") * 10000).to(dtype) for _ in range(4)]
        us = measure(function, sets, 40 if m * n < 2e6 else 8)
        print(f"{name}_{m}x{n} {str(dtype)[6:]} {us:.2f} {m * n * (8 + 2 * sets[0].element_size()) / us / 1000:.0f}", flush=True)


def scatter(rows, m, n):
    sets = [(torch.zeros(rows, n, device="cuda"), torch.randint(rows, (m,), device="cuda"), torch.randn(m, n, device="cuda")) for _ in range(4)]
    us = measure(lambda s: s[0].index_add_(0, s[1], s[2]), sets, 40)
    print(f"index_add_{m}x{n} f32 {us:.2f} {m * (8 * n + 8) / us / 1000:.0f}", flush=True)


def main():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for m, n in ((1, 4096), (1, 16384), (1, 65536), (1, 1_000_000), (1, 10_000_000), (32, 50_000), (2000, 3000)):
            order(dtype, m, n)
    scatter(30_000, 200_000, 64)
    scatter(30_000, 1_000_000, 1)
    for m, n in ((4096, 4096), (32, 384), (1024, 384)):
        for dtype in (torch.float32, torch.bfloat16):
            for name, shapes, out_shape, function in cases(m, n):
                sets = []
                for _ in range(4):
                    inputs = [torch.rand(s, device="cuda", dtype=torch.float32).to(dtype) for s in shapes]
                    out = torch.empty(out_shape, device="cuda", dtype=dtype)
                    if function is None:
                        inputs.append(torch.randint(30000, (m,), device="cuda"))
                    sets.append((*inputs, out))
                total = sum(t.numel() * t.element_size() for t in sets[0])
                if name == "layer_norm":
                    total += 8 * m
                run = lambda s: torch.index_select(s[0], 0, s[1], out=s[2]) if function is None else function(*s[:-1], out=s[-1])
                if function is None:
                    total += (m - 30000) * n * sets[0][0].element_size()
                us = measure(run, sets, 40 if total > 1e6 else 400)
                kind = "f32" if dtype == torch.float32 else "bf16"
                print(f"{name}_{m}x{n} {kind} {us:.2f} {total / us / 1000:.0f}", flush=True)
                del sets


if __name__ == "__main__":
    main()
