"""Says what pip would download for the torch that a requirements file names, before it does.

Usage: torch_download.py REQUIREMENTS. Exits with 1 where that includes CUDA packages, having said their size.
"""

import json
import re
import subprocess
import sys
import urllib.request


def planned(requirements: str) -> list[dict]:
    """What pip would install, as its report says; wheels are not downloaded."""
    torch = next(line.strip() for line in open(requirements) if line.startswith("torch=="))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qq",
               "--disable-pip-version-check", "--report", "-", torch]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["install"]


def size_of(url: str) -> int | None:
    """Bytes behind a wheel's address, or None where the server does not say."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20) as reply:
            return int(reply.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def main() -> int:
    packages = planned(sys.argv[1])
    cuda = [p for p in packages if re.match(r"nvidia|triton|cuda", p["metadata"]["name"])]
    if not cuda:
        return 0
    large = cuda + [p for p in packages if p["metadata"]["name"] == "torch"]
    sizes = [size_of(p["download_info"]["url"]) for p in large]
    known = sum(s for s in sizes if s)
    unknown = sizes.count(None)
    print(f"pip's torch is the CUDA build: {len(large)} packages, {known / 1e9:.1f} GB to download"
          + (f" and {unknown} of unknown size" if unknown else "") + "; xpud uses none of the CUDA part.")
    print("Go on with --yes, or use a torch that is already installed with --python PATH, or point pip at a CPU build of "
          "torch\n(PIP_EXTRA_INDEX_URL).")
    return 1


if __name__ == "__main__":
    sys.exit(main())
