"""Twelve chains of operators, each of which torch.compile makes one kernel, on the CPU device, beside Inductor's C++ on the same cores."""

import os
import sys

os.environ["XPUD_BENCH_PLAIN"] = "cpu"
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))

import compiled  # noqa: E402
import rows  # noqa: E402

if __name__ == "__main__":
    compiled.all_chains(1 if rows.SMOKE else 15, 0.9)
