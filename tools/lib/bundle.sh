# For tools/demo and tools/bench in an unpacked bundle of tools/bundle: its binaries are built; Python and PyTorch are the machine's.
# Sourced after common.sh.

in_bundle() { [[ -x bin/xpud ]]; }

# use_python_of_machine PYTHON NAME...: makes it XPUD_PYTHON, with torch_xpud built for its torch; dies if it lacks one of the named
# distributions.
use_python_of_machine() {
  local missing
  XPUD_PYTHON=$1
  shift
  missing=$("$XPUD_PYTHON" - torch "$@" <<'PY'
import importlib.metadata, sys
installed = {each.name.lower().replace("_", "-") for each in importlib.metadata.distributions() if each.name}
print(*(name for name in sys.argv[1:] if name not in installed))
PY
) || die "$XPUD_PYTHON does not work"
  [[ -z $missing ]] || die "$XPUD_PYTHON lacks: $missing. Try: $XPUD_PYTHON -m pip install $missing"
  export PYTHONPATH=$XPUD_ROOT/build/site${PYTHONPATH:+:$PYTHONPATH}
  "$XPUD_PYTHON" bin/build_torch_xpud.py --if-missing --target build/site || die "building torch_xpud for $XPUD_PYTHON failed"
}
