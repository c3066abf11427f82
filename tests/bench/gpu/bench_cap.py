"""What a claim of at most 30% gets alone on a GPU: the program of ../bench_cap.cc."""

import os
import pathlib

program = str(pathlib.Path(os.environ["XPUD_BENCH_BINARIES"]) / "bench_cap")
os.execv(program, [program])
