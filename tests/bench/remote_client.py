"""A client of bench_remote.py: for each line `WORK AMOUNT`, does that amount of work and reports done."""

import copy
import functools
import os
import pathlib
import socket
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))

from encoder import model_on_host  # noqa: E402

A = torch.ones(8, device="xpud")


def round_trips(count: int) -> None:
    for _ in range(count):
        (A + A).cpu()


def commands(count: int) -> None:
    for _ in range(count):
        A + A
    torch.xpud.synchronize()


@functools.cache
def model_of(batch: int):
    model = copy.deepcopy(model_on_host(torch.float32)).to("xpud")
    ids = torch.randint(1000, 30000, (batch, 128), generator=torch.Generator().manual_seed(0))
    return model, {"input_ids": ids.to("xpud"), "attention_mask": torch.ones_like(ids).to("xpud")}


def minilm(batch: int) -> None:
    model, inputs = model_of(batch)
    with torch.inference_mode():
        model(**inputs).last_hidden_state[:, 0].cpu()


@functools.cache
def memory_of(count: int):
    return torch.rand(count // 4), torch.empty(count // 4, device="xpud")


def upload(count: int) -> None:
    host, device = memory_of(count)
    device.copy_(host)
    torch.xpud.synchronize()


def download(count: int) -> None:
    host, device = memory_of(count)
    host.copy_(device)


@functools.cache
def echo():
    host, port = os.environ["XPUD_BENCH_ECHO"].split(":")  # tcp_echo.py
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def tcp_trips(count: int) -> None:
    for _ in range(count):
        echo().sendall(b"x")
        echo().recv(1)


WORKS = {work.__name__: work for work in (round_trips, commands, minilm, upload, download, tcp_trips)}

for line in sys.stdin:
    work, amount = line.split()
    WORKS[work](int(amount))
    print("done", flush=True)
