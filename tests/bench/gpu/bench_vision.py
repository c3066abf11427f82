"""Inference in bf16 of models that look at pictures or listen and of a recurrent network, beside plain PyTorch on the same GPU."""

import copy

import models
import rows
import sides
import torch

TURNS = 3 if rows.SMOKE else 21


class Inference:
    """The model and a batch on a device. A call is a forward that waits for its end."""

    def __init__(self, host_model: torch.nn.Module, inputs: models.Inputs, device: str):
        self._model = copy.deepcopy(host_model).to(device, torch.bfloat16).eval()
        self._inputs = {name: value.to(device, torch.bfloat16) for name, value in inputs.items()}
        self._device = device

    def __call__(self) -> torch.Tensor:
        with torch.inference_mode():
            result = self._model(**self._inputs)
        sides.synchronize(self._device)
        return result if isinstance(result, torch.Tensor) else result[0]


def measure(workload: models.Workload, target: str) -> None:
    torch.manual_seed(0)
    model, inputs = workload.build(), workload.inputs()
    both = {device: Inference(model, inputs, device) for device in sides.DEVICES}
    plain, xpud = (both[device]().float().cpu().flatten() for device in sides.DEVICES)
    cosine = torch.nn.functional.cosine_similarity(plain, xpud, dim=0).item()
    assert cosine > 0.99, f"{workload.name}: the results differ: cosine {cosine}"
    for inference in both.values():
        for _ in range(2 if rows.SMOKE else 10):
            inference()
    times = rows.interleaved(both, TURNS)
    rows.emit(f"{workload.name}, bf16", times["xpud"] * 1e3, "ms", sides.PLAIN_NAME, times[sides.PLAIN] * 1e3, sides.target(target))


def main() -> None:
    measure(models.resnet(1, labelled=False), "ratio <= 0.3")
    measure(models.resnet(32, labelled=False), "ratio <= 0.6")
    measure(models.vit(32, labelled=False), "ratio <= 0.8")
    measure(models.unet(1), "ratio <= 0.5")
    measure(models.whisper(4), "ratio <= 0.7")
    measure(models.lstm(labelled=False), "ratio <= 1.0")


if __name__ == "__main__":
    main()
