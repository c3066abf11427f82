"""Makes the wheel of torch_xpud from a build of the preset bundle: python wheel.py BUILD OUT.

It needs only torch, of the minor version that the shim was built for. The daemon and its libraries are inside, except those that the platform
tag promises (glibc, libstdc++, libgcc). Every library is found by run paths of the preset, relative to the program.
"""

import base64
import hashlib
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("xpud", "xpuctl", "xpud-connect")
LIBRARIES = ("libze_xpud.so", "libxpud.so.0", "libdnnl.so.3")
PROMISED = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so")
TORCHS = re.compile(r"lib(torch|torch_python|torch_cpu|c10)\.so")
# The newest symbol versions that the tag manylinux_2_36 allows (PEP 600's policy file of that name).
MOST = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}

# pip writes the interpreter into the first line. Does not import torch_xpud, which would import torch.
XPUCTL = """#!python
import importlib.util, os, pathlib, sys
program = pathlib.Path(importlib.util.find_spec("torch_xpud").origin).parent / "bin/xpuctl"
os.execv(program, ["xpuctl", *sys.argv[1:]])
"""


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def wanted(path: pathlib.Path) -> list[str]:
    return re.findall(r"^\s+NEEDED\s+(\S+)", output("objdump", "-p", path), re.M)


def collect(build: pathlib.Path, package: pathlib.Path) -> dict[str, pathlib.Path]:
    """Copies what was built, and the libraries of this machine that it needs, with the names by which they were found."""
    (package / "bin").mkdir(parents=True)
    (package / "lib").mkdir()
    for path in (build / "lib/torch_xpud").iterdir():
        if path.suffix in (".py", ".so"):
            shutil.copy(path, package)
        elif (path / "__init__.py").exists():
            shutil.copytree(path, package / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PROGRAMS:
        shutil.copy(build / "bin" / name, package / "bin")
    for name in LIBRARIES:
        shutil.copy(build / "lib" / name, package / "lib")
    borrowed = {}
    for path in [*package.glob("*.so"), *package.glob("bin/*"), *package.glob("lib/*")]:
        for name, found in re.findall(r"^\s+(\S+) => (/\S+)", output("ldd", path), re.M):
            if not PROMISED.match(name) and name not in LIBRARIES:
                borrowed[name] = pathlib.Path(found)
    for name, found in borrowed.items():
        shutil.copy(found, package / "lib" / name)
    return borrowed


def binaries(package: pathlib.Path) -> list[pathlib.Path]:
    return sorted([*package.glob("*.so"), *package.glob("bin/*"), *package.glob("lib/*")])


def tuple_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def glibc_of(paths: list[pathlib.Path]) -> tuple[int, ...]:
    """Returns the newest glibc that they need. Exits if they need something that neither the wheel nor the tag has."""
    inside = {path.name for path in paths}
    newest = (2, 17)
    for path in paths:
        strangers = [name for name in wanted(path) if not PROMISED.match(name) and not TORCHS.match(name) and name not in inside]
        if strangers:
            sys.exit(f"wheel: {path.name} needs {', '.join(strangers)}, which neither the wheel nor the platform tag has")
        for kind, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", output("objdump", "-p", path).partition("Version References:")[2]):
            if tuple_of(version) > MOST[kind]:
                sys.exit(f"wheel: {path.name} needs {kind}_{version}; manylinux_2_36 has {kind}_{'.'.join(map(str, MOST[kind]))}")
            if kind == "GLIBC":
                newest = max(newest, tuple_of(version))
    return newest


def add_licences(folder: pathlib.Path, borrowed: dict[str, pathlib.Path]) -> None:
    """Copies the licences of xpud, of Debian's libraries, of LLVM (linked in) and of oneDNN."""
    folder.mkdir()
    shutil.copy(ROOT / "LICENSE", folder / "xpud.txt")
    # Looks the path up by its end, because dpkg has some files under /lib that are in /usr/lib.
    owners = {output("dpkg-query", "-S", f"*/{path.resolve().parent.name}/{path.resolve().name}").split(":")[0] for path in borrowed.values()} | {"llvm-22-dev"}
    for owner in sorted(owners):
        shutil.copy(f"/usr/share/doc/{owner}/copyright", folder / f"{owner}.txt")
    oneDNN = next(path for path in importlib.metadata.files("onednn-cpu-gomp") if path.name == "LICENSE.txt")
    shutil.copy(oneDNN.locate(), folder / "onednn.txt")


def describe(project: dict, torch: str, tag: str, info: pathlib.Path) -> None:
    wants = [f"{name}=={torch}.*" if name == "torch" else name for name in project["dependencies"]]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\nSummary: {project['description']}\n"
                                   f"License: {project['license']}\nRequires-Python: {project['requires-python']}\n" + "".join(f"Requires-Dist: {want}\n" for want in wants))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: xpud\nRoot-Is-Purelib: false\nTag: {tag}\n")
    groups = project["entry-points"]
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
                                                   for group, entries in groups.items()))


def write(tree: pathlib.Path, info: pathlib.Path, wheel: pathlib.Path) -> None:
    """Writes the archive and its list of contents: the same bytes for the same files."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    lines = []
    for path in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(tree)},sha256={digest},{path.stat().st_size}")
    record = info / "RECORD"
    record.write_text("\n".join([*lines, f"{record.relative_to(tree)},,", ""]))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in [*files, record]:
            entry = zipfile.ZipInfo(str(path.relative_to(tree)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.parent.name in ("bin", "scripts") else 0o100644) << 16
            archive.writestr(entry, path.read_bytes())


def main() -> None:
    build, out = map(pathlib.Path, sys.argv[1:])
    project = tomllib.loads((ROOT / "sdk/torch/python/pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_") + "-" + project["version"]
    torch = ".".join(importlib.metadata.version("torch").split(".")[:2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        borrowed = collect(build, tree / "torch_xpud")
        output("strip", "--strip-unneeded", *binaries(tree / "torch_xpud"))
        glibc = glibc_of(binaries(tree / "torch_xpud"))
        python = f"cp{sysconfig.get_config_var('py_version_nodot')}"
        tag = f"{python}-{python}-manylinux_{glibc[0]}_{glibc[1]}_x86_64"
        info = tree / f"{name}.dist-info"
        info.mkdir()
        add_licences(info / "licenses", borrowed)
        describe(project, torch, tag, info)
        scripts = tree / f"{name}.data/scripts"
        scripts.mkdir(parents=True)
        (scripts / "xpuctl").write_text(XPUCTL)
        wheel = out / f"{name}-{tag}.whl"
        write(tree, info, wheel)
        installed = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    print(f"{wheel}: {wheel.stat().st_size >> 10} KiB, {installed >> 10} KiB installed, for torch {torch}")


if __name__ == "__main__":
    main()
