"""torch.compile on a GPU: models' inference in bfloat16, beside our eager mode and Inductor's Triton on the same GPU; the CPU-seconds of a first call."""

import compiled
import first_call
import models
import rows
import torch

TURNS = 1 if rows.SMOKE else 41


def main() -> None:
    for workload in (models.minilm(1, 128), models.minilm(32, 128), models.resnet(32, labelled=False), models.vit(32, labelled=False)):
        compiled.inference(workload, torch.bfloat16, TURNS, plain=True)
    first_call.report(0.6)


if __name__ == "__main__":
    main()
