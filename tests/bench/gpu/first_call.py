"""What compiling costs, in processes of their own with empty caches: the CPU-seconds of a compiled model's first call, which are the process's, its
children's and the daemon's compiler's; how long the daemon's compiler takes for the kernels of a large graph.

Run as a program, it prints the figures of one device as JSON: first_call.py DEVICE, first_call.py large"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import rows

HERE = pathlib.Path(__file__).resolve()


KERNELS = 28  # different ones, of a large graph


def _compiler() -> dict:
    """The state of the daemon's compiler."""
    xpuctl = pathlib.Path(os.environ["XPUD_BENCH_BINARIES"], "xpuctl")
    return json.loads(subprocess.run([xpuctl, "status", "-o", "json"], check=True, capture_output=True, text=True).stdout)["daemon"]["compiler"]


def _seconds_of_others() -> float:
    """Of our children, and of the compilations of the daemon."""
    times = os.times()
    return times.children_user + times.children_system + _compiler()["compile_ns"] / 1e9


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


def run_large() -> None:
    """A training step of a vision transformer of 12 layers."""
    import models
    import torch

    torch.manual_seed(0)
    workload = models.vit(2, labelled=True)
    model, inputs = workload.build().to("xpud"), {name: value.to("xpud") for name, value in workload.inputs().items()}
    before = _compiler()
    torch.compile(model)(**inputs)[0].backward()
    torch.xpud.synchronize()
    after = _compiler()
    print(json.dumps([after["compiled"] - before["compiled"], (after["compile_ns"] - before["compile_ns"]) / 1e9]))


def _measure(what: str) -> object:
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ["PYTHONPATH"]])}
        output = subprocess.run([sys.executable, HERE, what], env=env, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def report(target: float) -> None:
    """`target`: of our seconds over Inductor's."""
    import compiled

    ours, theirs = _measure("xpud"), _measure(compiled.PLAIN)
    rows.emit("MiniLM, first call, CPU-seconds", ours, "s", compiled.THEIRS, theirs, target=f"ratio <= {target}")
    kernels, seconds = _measure("large")
    rows.emit(f"{KERNELS} kernels, compiled one after another: those of a training step of ViT-B ({kernels})", seconds * KERNELS / kernels, "s", target="value <= 1.5")


if __name__ == "__main__":
    run_large() if sys.argv[1] == "large" else run(sys.argv[1])
