"""The Python environments of the stages `ecosystem` and `engines`: the packages of a folder's requirements.txt beside those of .venv."""

import hashlib
import pathlib
import shutil

from runner import ROOT, Log

BASE = ROOT / ".venv/bin/python"
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
