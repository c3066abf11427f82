"""A process with a model of many layers of one size, of which every forward reads all weights: `--device plain|xpud`, commands on its input.

open MIB               layers with so many MiB of weights; reports `opened`
window AT LENGTH       forwards from the time AT for LENGTH seconds (of time.perf_counter, which all processes share); reports `done`, with when each ended
                       (`ends`), and how many results were not those of the first forward (`wrong`)
prepare MIB            makes so many MiB of weights in host memory, the same in all processes; reports `prepared`
load AT                from the time AT, puts them on the device, one by one; reports `loaded`, with the seconds, and the number of tensors that are not
                       what was loaded (`wrong`)
offloaded MIB COUNT    COUNT forwards whose weights come from the host, layer by layer, each time; reports `done`, with the seconds of each
"""

import argparse
import time

import rows
import torch
from sides import ON_GPU, PLAIN, synchronize

import channel

WIDTH = 1024 if rows.SMOKE else 4096  # a layer has 2 MiB or 32 MiB of weights in half precision
ROWS = 8 if rows.SMOKE else 2048
TOLERANCE = 0 if ON_GPU else 1  # of a row's sum: the CPU's products change a little once it has packed the weights
LAYER_MIB = WIDTH * WIDTH * 2 / 2**20


class Layers:
    def __init__(self, device: str):
        self._device = device
        torch.manual_seed(0)
        self._one = (torch.randn(WIDTH, WIDTH) / WIDTH**0.5).half()
        self._weights: list[torch.Tensor] = []

    def _forward(self) -> torch.Tensor:
        y = self._input
        for weight in self._weights:
            y = torch.tanh(y @ weight.to(self._device))
        return y.float().sum(1).cpu()

    def _open(self, mib: str, device: str) -> None:
        one = self._one.to(device)
        self._weights = [one + i * 1e-5 for i in range(int(float(mib) / LAYER_MIB))]
        self._input = torch.randn(ROWS, WIDTH).half().to(self._device)
        self._expected = self._forward()

    def open(self, mib: str) -> None:
        self._open(mib, self._device)
        synchronize(self._device)
        channel.emit("opened")

    def window(self, at: str, length: str) -> None:
        end, ends, wrong = float(at) + float(length), [], 0
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        while not ends or ends[-1] < end:
            wrong += not torch.allclose(self._forward(), self._expected, rtol=0, atol=TOLERANCE)
            ends.append(time.perf_counter())
        channel.emit("done", ends=ends, wrong=wrong)

    def prepare(self, mib: str) -> None:
        self._host = [self._one + i * 1e-5 for i in range(int(float(mib) / LAYER_MIB))]
        torch.empty(1, device=self._device)  # the device is open
        channel.emit("prepared")

    def load(self, at: str) -> None:
        time.sleep(max(0.0, float(at) - time.perf_counter()))
        began = time.perf_counter()
        self._weights = [weight.to(self._device) for weight in self._host]
        synchronize(self._device)
        seconds = time.perf_counter() - began
        time.sleep(2)  # what is equal may become one meanwhile
        wrong = sum(not torch.equal(weight.cpu(), host) for weight, host in zip(self._weights, self._host))
        channel.emit("loaded", seconds=seconds, wrong=wrong)

    def offloaded(self, mib: str, count: str) -> None:
        self._open(mib, "cpu")
        channel.emit("done", seconds=[rows.seconds(self._forward) for _ in range(int(count))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["plain", "xpud"], required=True)
    layers = Layers({"plain": PLAIN}.get(parser.parse_args().device, "xpud"))
    channel.emit("ready")
    while words := channel.await_command():
        getattr(layers, words[0])(*words[1:])


if __name__ == "__main__":
    main()
