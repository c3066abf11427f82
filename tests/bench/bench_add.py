"""a + b of 16x16 float32 from Python: the caller's cost of one small eager op, beside plain PyTorch on the CPU."""

import rows
import torch

BURST = 200  # ops issued while the daemon may lag behind


def issue(a: torch.Tensor, b: torch.Tensor, count: int) -> None:
    for _ in range(count):
        a + b


def measure(name: str, count: int, repeats: int, finish_inside: bool) -> None:
    operands = {device: [torch.rand(16, 16).to(device) for _ in range(2)] for device in ("cpu", "xpud")}
    times: dict[str, list[float]] = {"cpu": [], "xpud": []}
    for _ in range(repeats):
        for device, (a, b) in operands.items():
            issue(a, b, 100)
            torch.xpud.synchronize()

            def work(a=a, b=b, device=device):
                issue(a, b, count)
                if finish_inside and device == "xpud":
                    torch.xpud.synchronize()

            times[device].append(rows.seconds(work))
            torch.xpud.synchronize()
    cpu, xpud = (sorted(times[device])[repeats // 2] / count * 1e9 for device in ("cpu", "xpud"))
    rows.emit(name, xpud, "ns", "plain PyTorch, CPU", cpu, "ratio <= 0.75")


def main() -> None:
    measure("a+b 16x16, burst", BURST, 20 if rows.SMOKE else 300, finish_inside=False)
    measure("a+b 16x16, sustained", 5_000 if rows.SMOKE else 100_000, 3 if rows.SMOKE else 7, finish_inside=True)


if __name__ == "__main__":
    main()
