"""The CPU-seconds of a compiled model's first call, in a process of its own with empty caches: the process's, its children's and the daemon's compiler's.

Run as a program, it prints those of one device as JSON: first_call.py DEVICE"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import rows

HERE = pathlib.Path(__file__).resolve()


def _seconds_of_others() -> float:
    """Of our children, and of the compilations of the daemon."""
    times = os.times()
    xpuctl = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"], "xpuctl")
    status = json.loads(subprocess.run([xpuctl, "status", "-o", "json"], check=True, capture_output=True, text=True).stdout)
    return times.children_user + times.children_system + status["daemon"]["compiler"]["compile_ns"] / 1e9


def run(device: str) -> None:
    import models
    import torch
    import torch._dynamo  # noqa: F401
    import torch._inductor.compile_fx  # noqa: F401

    torch.manual_seed(0)
    workload = models.minilm(1, 16)
    model = workload.build().eval().to(device)
    inputs = {name: value.to(device) for name, value in workload.inputs().items()}
    with torch.inference_mode():
        model(**inputs)  # eager kernels are not counted
        getattr(torch, device).synchronize()
        own, others = sum(os.times()[:2]), _seconds_of_others()
        torch.compile(model)(**inputs)
        getattr(torch, device).synchronize()
    if device != "xpud":
        from torch._inductor.async_compile import shutdown_compile_workers
        shutdown_compile_workers()  # so that their time is known
    print(json.dumps(sum(os.times()[:2]) - own + _seconds_of_others() - others))


def _measure(device: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ["PYTHONPATH"]])}
        output = subprocess.run([sys.executable, HERE, device], env=env, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def report(target: float) -> None:
    """`target`: of our seconds over Inductor's."""
    import compiled

    ours, theirs = _measure("xpud"), _measure(compiled.PLAIN)
    rows.emit("MiniLM, first call, CPU-seconds", ours, "s", compiled.THEIRS, theirs, target=f"ratio <= {target}")


if __name__ == "__main__":
    run(sys.argv[1])
