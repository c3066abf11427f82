"""Builds xpud._xpud with the tree's CMake (XPUD_CLIENT_ONLY), and adds the Abseil libraries that it needs, so that the wheel also runs without an installed
Abseil. One binary serves every Python from 3.9 (CPython's stable ABI)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import setuptools
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/python"  # everything that pip builds, so that nothing is written to the source folders
BUILD.mkdir(parents=True, exist_ok=True)
shutil.rmtree(BUILD / "setuptools", ignore_errors=True)  # it would keep files that were removed from the source


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        target = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve()
        compiler = os.environ.get("CXX") or "clang++-22"
        build = BUILD / "cmake"
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if (ccache := shutil.which("ccache")) else []
        subprocess.run(["cmake", "-S", ROOT, "-B", build, "-DXPUD_CLIENT_ONLY=ON", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={compiler}",
                        f"-DCMAKE_C_COMPILER={compiler.replace('++', '')}", f"-DXPUD_CLIENT_PYTHON={sys.executable}", *launcher], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "xpud_python", "--parallel", str(len(os.sched_getaffinity(0)))], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        built = build / "lib/xpud"
        subprocess.run(["strip", "-o", target, built / "_xpud.abi3.so"], check=True)
        for stub in built.glob("*.pyi"):
            shutil.copy2(stub, target.parent)
        copy_libraries(target)


def copy_libraries(module: pathlib.Path) -> None:
    libraries = module.parent / "libs"
    shutil.rmtree(libraries, ignore_errors=True)  # removes those of the last build
    found = subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout
    libraries.mkdir()
    for path in re.findall(r"=> (\S*/libabsl_\S+)", found):
        shutil.copy2(pathlib.Path(path).resolve(), libraries / pathlib.Path(path).name)


setuptools.setup(
    ext_modules=[setuptools.Extension("xpud._xpud", [], py_limited_api=True)],
    cmdclass={"build_ext": CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp39"}, "build": {"build_base": str(BUILD / "setuptools")}, "egg_info": {"egg_base": str(BUILD)}},
)
