"""A process that gets tensors from a child through a queue of torch.multiprocessing: `--device plain|xpud`, commands on its input.

pass MIB COUNT   COUNT tensors of so many MiB, each a new one; reports `done`, with the seconds from before each was put to when the receiver had read its last
                 element, and keeps the last one
orphan           kills the child; reports `done`, with the number of elements of the last tensor that are not what the child wrote (`wrong`)
drop             gives the last tensor back; reports `done`
"""

import argparse
import time

import torch
import torch.multiprocessing
from sides import PLAIN, synchronize

import channel

VALUE = 7.0


def send_tensors(device: str, requests, queue) -> None:
    """The child: sends a tensor whenever it is asked for one, until it is killed."""
    while True:
        elements = requests.get()
        tensor = torch.full((elements,), VALUE, device=device)
        synchronize(device)
        queue.put((time.perf_counter(), tensor))


class Receiver:
    def __init__(self, device: str):
        self._device = device
        context = torch.multiprocessing.get_context("spawn")
        self._requests, self._queue = context.Queue(), context.Queue()
        self._child = context.Process(target=send_tensors, args=(device, self._requests, self._queue), daemon=True)
        self._child.start()
        torch.empty(1, device=device)

    def do_pass(self, mib: str, count: str) -> None:
        seconds = []
        for _ in range(int(count)):
            self._requests.put((int(mib) << 20) // 4)
            began, self._tensor = self._queue.get(timeout=60)
            last = self._tensor[-1].item()
            seconds.append(time.perf_counter() - began)
            if last != VALUE:
                raise RuntimeError(f"the last element is {last}, not {VALUE}")
        channel.emit("done", seconds=seconds)

    def do_orphan(self) -> None:
        self._child.kill()
        self._child.join()
        channel.emit("done", wrong=int((self._tensor != VALUE).sum().item()))

    def do_drop(self) -> None:
        del self._tensor
        synchronize(self._device)
        channel.emit("done")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["plain", "xpud"], required=True)
    receiver = Receiver({"plain": PLAIN}.get(parser.parse_args().device, "xpud"))
    channel.emit("ready")
    while words := channel.await_command():
        getattr(receiver, f"do_{words[0]}")(*words[1:])


if __name__ == "__main__":
    main()
