"""torch.compile on the CPU device: five models, inference in float32 and bfloat16, beside our eager mode and Inductor's C++ on the same cores; the CPU-seconds
of a first call."""

import os
import sys

os.environ["XPUD_BENCH_PLAIN"] = "cpu"
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))

import compiled  # noqa: E402
import first_call  # noqa: E402
import models  # noqa: E402
import rows  # noqa: E402
import torch  # noqa: E402

# Where the processor has no products of bfloat16, Inductor's take minutes.
PLAIN_TYPES = [torch.float32] + ([torch.bfloat16] if torch.cpu._is_avx512_bf16_supported() else [])
TURNS = 1 if rows.SMOKE else 9


def main() -> None:
    workloads = [models.minilm(32, 128), models.bert(4, 128, labelled=False), models.gpt2(2, 256, labelled=False),
                 models.Workload("Llama-like b1 x 256", models.llama, lambda: models.tokens(1, 16 if rows.SMOKE else 256, 32000, labelled=False)),
                 models.vit(4, labelled=False)]
    all_to_eager = []
    for dtype in (torch.float32, torch.bfloat16):
        to_theirs = []
        for workload in workloads:
            ours, theirs = compiled.inference(workload, dtype, TURNS, dtype in PLAIN_TYPES)
            all_to_eager.append(ours)
            to_theirs += [theirs] if theirs else []
        if to_theirs:
            rows.emit(f"five models, {str(dtype).removeprefix('torch.')}, geometric mean of the ratios", compiled.geomean(to_theirs), "x", compiled.THEIRS, 1.0,
                      target=f"ratio <= {1.0 if dtype == torch.float32 else 0.8}")
    rows.emit("the ten, geometric mean of the ratios", compiled.geomean(all_to_eager), "x", "our eager", 1.0, target="ratio <= 0.93")
    first_call.report(0.45)


if __name__ == "__main__":
    main()
