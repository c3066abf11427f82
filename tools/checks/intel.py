"""Intel's driver and compiler from Debian's packages, in build/intel, without installing them."""

import shutil
import subprocess

from runner import ROOT, Log, StageFailed

FOLDER = ROOT / "build/intel"
PACKAGES = ("intel-opencl-icd", "libigc1", "libigdfcl1", "libigdgmm12", "libopencl-clang14", "libllvmspirvlib14", "libllvm14", "libclang-cpp14")


def prepare(log: Log) -> None:
    """Downloads the newest version of each package, and unpacks it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    log.must("apt-get", "download", *PACKAGES, cwd=FOLDER)
    for package in FOLDER.glob("*.deb"):
        log.must("dpkg-deb", "-x", package, FOLDER)
    driver = FOLDER / "usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1"
    missing = subprocess.run(["ldd", driver], env={"LD_LIBRARY_PATH": str(driver.parent)}, capture_output=True, text=True).stdout
    if "not found" in missing:
        raise StageFailed(f"Intel's driver needs other packages: {missing}")
