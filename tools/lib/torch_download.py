"""Reports what pip would download for the torch of a requirements file, before it does.

Usage: torch_download.py [--yes] REQUIREMENTS. If that includes CUDA packages, prints their size and asks whether to continue. --yes answers yes;
without it and without a terminal, the answer is no. Exits with 0 to continue, with 1 to stop.
"""

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import urllib.request

CUDA = re.compile(r"nvidia|triton|cuda")


def wanted(requirements: str) -> str:
    """Returns the requirement for torch: torch==2.13.0."""
    return next(line.strip() for line in open(requirements) if line.startswith("torch=="))


def is_installed(requirement: str) -> bool:
    """Whether this Python has that torch, of any build: 2.13.0+cpu counts as 2.13.0."""
    try:
        return importlib.metadata.version("torch").split("+")[0] == requirement.removeprefix("torch==")
    except importlib.metadata.PackageNotFoundError:
        return False


def planned(requirement: str) -> list[dict]:
    """Returns what pip would install, from its report; wheels are not downloaded."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qq",
               "--disable-pip-version-check", "--report", "-", requirement]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["install"]


def size_of(url: str) -> int | None:
    """Returns the size of a wheel at an address, or None if the server does not report it."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20) as reply:
            return int(reply.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def size_text(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def warning(packages: list[dict]) -> str | None:
    """Returns a warning for a plan with CUDA packages, otherwise None."""
    large = [p for p in packages if CUDA.match(p["metadata"]["name"].lower())]
    if not large:
        return None
    large += [p for p in packages if p["metadata"]["name"].lower() == "torch"]
    sizes = [size_of(p["download_info"]["url"]) for p in large]
    known = [size for size in sizes if size is not None]
    total = size_text(sum(known)) if known else "an unknown size"
    if known and len(known) < len(sizes):
        total += f" and {len(sizes) - len(known)} of unknown size"
    return f"{total} to download: pip's torch is the CUDA build, {len(large)} packages, and xpud uses none of the CUDA part."


def agreed() -> bool:
    if not sys.stdin.isatty():
        print("Go on with --yes, or use a torch that is already installed with --python PATH, or point pip at a CPU build of torch\n"
              "(PIP_EXTRA_INDEX_URL).")
        return False
    try:
        return input("Go on? (--python PATH uses a torch that is installed; PIP_EXTRA_INDEX_URL can name a CPU build) [y/N] ").lower() in (
            "y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("requirements")
    arguments = parser.parse_args()
    requirement = wanted(arguments.requirements)
    if is_installed(requirement):
        return 0
    try:
        text = warning(planned(requirement))
    except subprocess.CalledProcessError as error:
        print(f"pip cannot find {requirement} or its dependencies (exit status {error.returncode}; see its messages above)", file=sys.stderr)
        return 1
    if text is None:
        return 0
    print(text, flush=True)
    return 0 if arguments.yes or agreed() else 1


if __name__ == "__main__":
    sys.exit(main())
