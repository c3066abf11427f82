"""The environment of the stage `ecosystem`: build/ecosystem, with the packages of tests/ecosystem/requirements.txt beside those of .venv."""

import hashlib
import pathlib
import shutil

from runner import ROOT, Log

FOLDER = ROOT / "build/ecosystem"
BASE = ROOT / ".venv/bin/python"
REQUIREMENTS = ROOT / "tests/ecosystem/requirements.txt"
PINS = ROOT / "tools/requirements.txt"  # of .venv: pip must not replace any of them, above all not torch


def prepare(log: Log) -> pathlib.Path:
    """Returns the environment's Python. Installs only if the requirements have changed, because that takes half a minute and a download."""
    stamp = FOLDER / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + PINS.read_bytes() + str(BASE).encode()).hexdigest()
    python = FOLDER / "bin/python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    log.must(BASE, "-m", "venv", "--without-pip", FOLDER)
    site, base_site = (log.must(each, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip() for each in (python, BASE))
    pathlib.Path(site, "base.pth").write_text(f"import site; site.addsitedir({base_site!r})\n")  # addsitedir, so that .venv's own .pth files count
    log.must(BASE, "-m", "pip", "--python", python, "install", "-qq", "--disable-pip-version-check", "-r", REQUIREMENTS, "-c", PINS, timeout=900,
             env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    stamp.write_text(wanted)
    return python
