"""Matrix products in bf16, several in a row, in TFLOP/s."""

import rows
import sides
import torch

SIZES = {512: 2} if rows.SMOKE else {4096: 320, 8192: 40}  # size: products in a row, so many that the wait for the last does not matter


def main() -> None:
    for size, in_a_row in SIZES.items():
        a, b = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
        operands = {device: (a.to(device), b.to(device)) for device in sides.DEVICES}

        def products(device: str, operands=operands, in_a_row=in_a_row) -> torch.Tensor:
            left, right = operands[device]
            for _ in range(in_a_row):
                product = left @ right
            sides.synchronize(device)
            return product

        plain, xpud = (products(device).float().cpu() for device in sides.DEVICES)
        assert (plain - xpud).abs().max() <= 0.02 * plain.abs().max(), "the products differ"
        times = rows.interleaved({device: lambda device=device: products(device) for device in sides.DEVICES}, 3 if rows.SMOKE else 21)
        plain, xpud = (2 * size**3 * in_a_row / times[device] / 1e12 for device in sides.DEVICES)
        rows.emit(f"GEMM bf16 {size}", xpud, "TFLOP/s", sides.PLAIN_NAME, plain, sides.target("ratio >= 0.97"))


if __name__ == "__main__":
    main()
