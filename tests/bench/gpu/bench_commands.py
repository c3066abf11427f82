"""The cost of a command on a GPU: ../bench_commands.py."""

import pathlib
import runpy

runpy.run_path(str(pathlib.Path(__file__).resolve().parents[1] / "bench_commands.py"), run_name="__main__")
