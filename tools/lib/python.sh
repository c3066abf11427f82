# Checks the interpreter of tools/setup --python, and creates .venv on it. Sourced after common.sh.

# Runs an interpreter; torch is imported without the back ends that it would load.
ask() { TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$@"; }

# check_base PYTHON: dies unless it has the torch that the shim is written for (any build, any patch level).
check_base() {
  local wanted version
  [[ -x $1 ]] || die "--python: there is no program $1"
  ask "$1" -c 'import sys; sys.exit(sys.prefix == sys.argv[1])' "$XPUD_ROOT/.venv" || die "--python: $1 belongs to .venv, which will be created anew; name another"
  version=$(ask "$1" -c 'import torch; print(torch.__version__)' 2>/dev/null) || die "--python: $1 has no torch"
  wanted=$(sed -n 's/^torch==\([0-9]*\.[0-9]*\).*/\1/p' tools/requirements.txt)
  [[ $version == "$wanted".* ]] || die "--python: $1 has torch $version; xpud's PyTorch package needs torch $wanted"
}

# make_venv_on PYTHON: a fresh .venv that sees the packages of PYTHON, which may itself be a virtual environment's.
make_venv_on() {
  rm -rf .venv
  "$1" -m venv .venv
  ask "$1" -c 'import pathlib, torch; print(pathlib.Path(torch.__path__[0]).parent)' \
    >"$("$XPUD_PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/xpud_base.pth"
  ask "$XPUD_PYTHON" -c 'import torch; print("    torch", torch.__version__, "from", torch.__path__[0])'
}
