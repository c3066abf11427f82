#!/usr/bin/env python3
"""Builds torch_xpud for the PyTorch of the Python that runs this, from a bundle of tools/bundle, and installs it there:

    /opt/xpud/bin/build_torch_xpud.py

Needs a C++20 compiler ($CXX, otherwise c++) and that Python's headers. `--target FOLDER` installs into a folder for PYTHONPATH instead of
site-packages. `--if-missing` does nothing if torch_xpud was already built from this bundle for this torch.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

BUNDLE = pathlib.Path(__file__).resolve().parents[1]
SOURCE = BUNDLE / "share/xpud/src"


def compiler_arguments(torch_root: pathlib.Path) -> list[str]:
    import torch
    systems = [torch_root / "include", torch_root / "include/torch/csrc/api/include", torch_root / "include/kineto", sysconfig.get_paths()["include"],
               BUNDLE / "share/xpud/include"]
    return [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-w",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", "-DTORCH_EXTENSION_NAME=_C",
            f"-DXPUD_VERSION=\"{(SOURCE / 'VERSION').read_text().strip()}\"",
            f"-I{SOURCE}", f"-I{SOURCE}/sdk/include", *(part for system in systems for part in ("-isystem", str(system)))]


def is_there(package: pathlib.Path) -> bool:
    found = importlib.util.find_spec("torch_xpud")
    return bool(found and found.origin and pathlib.Path(found.origin).resolve().is_relative_to(package.resolve())
                and list((package / "torch_xpud").glob("_C*.so")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, help="install here instead of into site-packages")
    parser.add_argument("--if-missing", action="store_true", help="build only if it is missing or out of date")
    options = parser.parse_args()
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        import torch
    except ImportError:
        print(f"{sys.executable} has no torch", file=sys.stderr)
        return 1
    torch_root = pathlib.Path(torch.__file__).parent
    package = BUNDLE / "python" / f"{sys.version_info.major}.{sys.version_info.minor}-torch{torch.__version__}"
    if options.if_missing and is_there(package):
        return 0
    print(f"torch_xpud: building it for torch {torch.__version__} of {sys.executable}, about a minute", file=sys.stderr)
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(SOURCE / "sdk/torch/python/torch_xpud", package / "torch_xpud")
    command = compiler_arguments(torch_root)
    sources = sorted(SOURCE.rglob("*.cc"))
    with tempfile.TemporaryDirectory() as folder:
        def build(number: int, source: pathlib.Path) -> pathlib.Path:
            target = pathlib.Path(folder, f"{number}.o")
            subprocess.run([*command, "-c", source, "-o", target], check=True)
            return target
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            building = [pool.submit(build, i, source) for i, source in enumerate(sources)]
            for done, _ in enumerate(concurrent.futures.as_completed(building), 1):
                print(f"\r  [{done}/{len(building)}]", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        objects = {source: each.result() for source, each in zip(sources, building)}
        alone = [objects.pop(source) for source in sources if source.name == "first_use.cc"]  # a module of its own: sdk/torch/CMakeLists.txt
        libraries = [f"-l:{path.name}" for path in sorted((BUNDLE / "lib").glob("libabsl_*.so*"))]
        for name, parts in (("_C", objects.values()), ("_first_use", alone)):
            module = package / "torch_xpud" / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
            subprocess.run([command[0], "-shared", "-o", module, *parts, f"-L{torch_root}/lib", "-ltorch_python", "-ltorch_cpu", "-lc10",
                            "-l:libstdc++.so.6",  # the one that torch uses; where only the static one has its usual name, that would be linked in
                            f"-L{BUNDLE}/lib", "-Wl,--as-needed", *libraries, "-Wl,--disable-new-dtags",
                            f"-Wl,-rpath,{BUNDLE}/lib:{torch_root}/lib", "-pthread"], check=True)
    install = [sys.executable, SOURCE / "sdk/torch/python/install.py", "--library", package]
    if options.target:
        install += ["--target", options.target]
    return subprocess.run(install).returncode


if __name__ == "__main__":
    sys.exit(main())
