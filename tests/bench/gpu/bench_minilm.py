"""MiniLM, unchanged eager code, beside plain PyTorch on the same GPU: each side in a loop of its own, as in a program, and both in turns; and the Python
floor, the same code on a device that drops every command."""

import statistics

import rows
import sides
import torch
import workers
from encoder import TOKENS, WEIGHTS, Encoder

BLOCKS, LOOP = (2, 3) if rows.SMOKE else (9, 40)


def emit(name: str, times: dict[str, float], target: str = "") -> None:
    plain, xpud = (times[device] * 1e3 for device in sides.DEVICES)
    rows.emit(f"MiniLM {name}", xpud, "ms", sides.PLAIN_NAME, plain, sides.target(target))


def check(encoders: dict[str, Encoder]) -> None:
    plain, xpud = (encoders[device]().float().cpu() for device in sides.DEVICES)
    cosine = torch.nn.functional.cosine_similarity(plain, xpud, dim=-1).min().item()
    assert cosine > 0.99, f"the results differ: cosine {cosine}"


def warmed(dtype: torch.dtype, batch: int, tokens: int) -> dict[str, Encoder]:
    encoders = {device: Encoder(device, dtype, batch, tokens) for device in sides.DEVICES}
    check(encoders)
    for encoder in encoders.values():
        for _ in range(2 if rows.SMOKE else 10):
            encoder()
    return encoders


def single() -> None:
    """One request at a time, so that the host's cost dominates."""
    encoders = warmed(torch.bfloat16, 1, TOKENS)
    floor = workers.start("null device", "xpud", workers.NULL_DEVICE)
    floor.expect("ready")
    workers.opened(floor)
    times = {name: [] for name in (*encoders, "floor")}
    rows.begin_canary()
    for _ in range(BLOCKS):
        rows.canary()
        for device, encoder in encoders.items():
            times[device] += [rows.seconds(encoder) for _ in range(LOOP)]
        times["floor"] += workers.asked(floor, "forward", LOOP)
    floor.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    emit(f"bf16, 1 x {TOKENS}, own loop", medians, "ratio <= 0.5")
    rows.emit(f"MiniLM bf16, 1 x {TOKENS}, the Python floor", medians["floor"] * 1e3, "ms", sides.PLAIN_NAME, medians[sides.PLAIN] * 1e3)
    emit(f"bf16, 1 x {TOKENS}, in turns", rows.interleaved(encoders, BLOCKS * LOOP // 2), "ratio <= 0.5")


def main() -> None:
    print(f"  MiniLM with {WEIGHTS}", flush=True)
    single()
    batch, tokens, turns = (2, 32, 2) if rows.SMOKE else (32, 128, 100)
    emit(f"bf16, {batch} x {tokens}", rows.interleaved(warmed(torch.bfloat16, batch, tokens), turns), "ratio <= 1.0")
    for batch, tokens in ((1, TOKENS), (batch, tokens)):
        emit(f"f32, {batch} x {tokens}", rows.interleaved(warmed(torch.float32, batch, tokens), turns))


if __name__ == "__main__":
    main()
