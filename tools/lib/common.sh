# Shared by tools/setup, tools/test, tools/demo and tools/bench. Sourced with bash, from anywhere; leaves the shell in
# the repository's root.
set -euo pipefail
XPUD_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
XPUD_CALLED_IN=$PWD
cd "$XPUD_ROOT"

# Cache hits between clones in different folders.
export CCACHE_BASEDIR=$XPUD_ROOT CCACHE_NOHASHDIR=1
# Cores that this process may use, with a container's limit.
XPUD_JOBS=${XPUD_JOBS:-$(nproc)}
XPUD_PYTHON=$XPUD_ROOT/.venv/bin/python

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# program NAME_OR_PATH: its path, from the caller's folder and PATH; links are not followed.
program() { (cd "$XPUD_CALLED_IN" && realpath -s "$(command -v "$1")" 2>/dev/null) || die "--python: there is no program $1"; }

# fingerprint PATH...: a hash of the names and contents of files, also below folders (except caches).
fingerprint() {
  find "$@" -type f -not -path '*/__pycache__/*' -not -name '*.pyc' -not -path '*.egg-info/*' -print0 | sort -z |
    xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}
