"""Runs a program that was written for cuda, xpu or hpu on xpud, unchanged:

    python -m torch_xpud script.py [arguments]
    python -m torch_xpud -m module [arguments]

The program sees sys.argv, sys.path and __main__ as under plain Python.
"""

import io
import os
import runpy
import sys

from torch_xpud import translate, waiting
from torch_xpud.translate import source


def _run_script(path):
    """Executes a file in the module __main__, which until now is this one."""
    with io.open_code(os.path.abspath(path)) as file:
        code = source.compile_program(file.read(), path)
    main = sys.modules["__main__"]
    for name in list(vars(main)):
        if name not in ("__name__", "__builtins__"):
            del vars(main)[name]
    vars(main).update(__file__=path, __spec__=None, __doc__=None, __package__=None, __loader__=None, __cached__=None)
    exec(code, vars(main))


def main():
    arguments = sys.argv[1:]
    as_module = bool(arguments) and arguments[0] == "-m"
    if as_module:
        arguments = arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr if not arguments else sys.stdout)
        return 2 if not arguments else 0
    program = arguments[0]
    if not as_module and not os.path.exists(program):
        print(f"torch_xpud: can't open file {program!r}", file=sys.stderr)
        return 2
    sys.argv[:] = arguments
    folder = os.getcwd() if as_module else os.path.dirname(os.path.abspath(program))
    waiting.use()
    translate.install(folder)
    translate.announce(program)
    if as_module:
        runpy._run_module_as_main(program)  # as `python -m` does
    else:
        sys.path[0] = folder
        _run_script(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
