"""Copies on the device, counting bytes read and written, and between it and the host: with ordinary memory on xpud, beside plain PyTorch with pinned
memory (its fastest) and with ordinary memory; and both with memory that each has pinned."""

import rows
import sides
import torch

ON_DEVICE = (16 if rows.SMOKE else 1024) << 20
WITH_HOST = (16 if rows.SMOKE else 256) << 20
IN_A_ROW = 2 if rows.SMOKE else 100
SUSTAINED = 2 if rows.SMOKE else 16  # copies between the device and the host before one waits
TURNS = 3 if rows.SMOKE else 21


def on_device() -> None:
    tensors = {device: [torch.rand(ON_DEVICE // 4).to(device) for _ in range(2)] for device in sides.DEVICES}

    def copy(device: str) -> None:
        source, target = tensors[device]
        for _ in range(IN_A_ROW):
            target.copy_(source)
        sides.synchronize(device)

    for device in sides.DEVICES:
        copy(device)
        assert torch.equal(*(tensor.cpu() for tensor in tensors[device])), "the copy differs"
    times = rows.interleaved({device: lambda device=device: copy(device) for device in sides.DEVICES}, TURNS)
    plain, xpud = (2 * ON_DEVICE * IN_A_ROW / times[device] / 1e12 for device in sides.DEVICES)
    rows.emit(f"device copy {ON_DEVICE >> 20} MiB, read and written", xpud, "TB/s", sides.PLAIN_NAME, plain, sides.target("ratio >= 0.97"))


class Host:
    """Two host tensors and one on a device, with the copies between. Pinned memory is the device's own kind of it: where PyTorch has CUDA,
    its factories give CUDA's, and pin_memory() gives xpud's."""

    def __init__(self, device: str, pinned: bool):
        self._source, self._back = (self._memory(device, pinned) for _ in range(2))
        self._source.uniform_()
        self._there = torch.empty(WITH_HOST // 4, device=device)
        self._device, self._pinned = device, pinned
        self.upload(), self.download()
        assert torch.equal(self._source, self._back), "what came back is not what was sent"

    @staticmethod
    def _memory(device: str, pinned: bool) -> torch.Tensor:
        if not pinned:
            return torch.empty(WITH_HOST // 4)
        if device != "xpud":
            return torch.empty(WITH_HOST // 4, pin_memory=sides.ON_GPU)
        made = torch.empty(WITH_HOST // 4).pin_memory()
        assert made.is_pinned(), "the daemon gave no pinned memory"
        return made

    def upload(self) -> None:
        self._there.copy_(self._source, non_blocking=self._pinned)
        sides.synchronize(self._device)

    def download(self) -> None:
        self._back.copy_(self._there, non_blocking=self._pinned)
        sides.synchronize(self._device)


    def blocking_upload(self) -> None:
        self._there.copy_(self._source)

    def blocking_download(self) -> None:
        self._back.copy_(self._there)

    def sustained_upload(self) -> None:
        for _ in range(SUSTAINED):
            self._there.copy_(self._source, non_blocking=True)
        sides.synchronize(self._device)

    def sustained_download(self) -> None:
        for _ in range(SUSTAINED):
            self._back.copy_(self._there, non_blocking=True)
        sides.synchronize(self._device)


def with_pinned() -> None:
    hosts = {"xpud": Host("xpud", True), "plain": Host(sides.PLAIN, True)}
    for way in ("upload", "download"):
        for manner, count in (("blocking", 1), ("sustained", SUSTAINED)):
            times = rows.interleaved({name: getattr(host, f"{manner}_{way}") for name, host in hosts.items()}, TURNS)
            xpud, plain = (WITH_HOST * count / times[name] / 1e9 for name in hosts)
            rows.emit(f"pinned {way} {WITH_HOST >> 20} MiB, {manner}", xpud, "GB/s", sides.PLAIN_NAME, plain, sides.target("ratio >= 0.9"))


def with_host() -> None:
    hosts = {"xpud": Host("xpud", False), "pinned": Host(sides.PLAIN, sides.ON_GPU), "ordinary": Host(sides.PLAIN, False)}
    for way in ("upload", "download"):
        times = rows.interleaved({name: getattr(host, way) for name, host in hosts.items()}, TURNS)
        speed = {name: WITH_HOST / taken / 1e9 for name, taken in times.items()}
        for kind in ("pinned", "ordinary"):
            rows.emit(f"ordinary {way} {WITH_HOST >> 20} MiB, beside {kind} memory", speed["xpud"], "GB/s", sides.PLAIN_NAME, speed[kind])


if __name__ == "__main__":
    on_device()
    with_host()
    with_pinned()
