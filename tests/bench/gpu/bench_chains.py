"""Twelve chains of operators, each of which torch.compile makes one kernel, beside Inductor's Triton on the same GPU."""

import compiled
import rows

if __name__ == "__main__":
    compiled.all_chains(1 if rows.SMOKE else 21, 1.0)
