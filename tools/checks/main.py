"""tools/test: chooses the stages and runs them."""

import argparse
import os
import signal
import sys

import runner
import stages


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/test", description="Runs the stages of CI.")
    parser.add_argument("stage", nargs="*", help="only these stages, in the usual order")
    parser.add_argument("--full", action="store_true", help="also run stages that are too slow for every change")
    parser.add_argument("-k", metavar="NAME", help="of these stages, only ctest's tests, classes and methods of unittest whose names contain NAME")
    parser.add_argument("--list", action="store_true", help="list the stages")
    arguments = parser.parse_args()
    if arguments.list:
        for stage in stages.STAGES:
            print(f"{stage.name:<12} {stage.what}{' (with --full, or by name)' if stage.full else ''}")
        return 0
    unknown = set(arguments.stage) - {stage.name for stage in stages.STAGES}
    if unknown:
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; available: {', '.join(s.name for s in stages.STAGES)}")
    if arguments.k and not arguments.stage:
        parser.error("-k needs the names of stages")
    if arguments.k:
        os.environ["XPUD_TEST_NAME"] = arguments.k
    if arguments.full:
        os.environ["XPUD_TEST_FULL"] = "1"
    # A shell ignores Ctrl-C for background commands, and children inherit that. Then tests of Ctrl-C would fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [stage for stage in stages.STAGES if stage.name in arguments.stage or (not arguments.stage and (arguments.full or not stage.full))]
    tally = runner.run_stages(chosen)
    if arguments.k and tally == runner.Tally():
        parser.error(f"no test of {', '.join(arguments.stage)} has {arguments.k} in its name")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
