"""Makes unittest tests from a database: all items run once, and each name is a test."""

import datetime
import os
import sys
import unittest

import opnet
from opnet_exceptions import EXCEPTIONS
from opnet_judge import described, stale, unexplained

FULL = bool(os.environ.get("XPUD_TEST_FULL"))
TENTH = int(os.environ.get("XPUD_TEST_TENTH") or datetime.date.today().toordinal() % 10)


def is_full(name):
    return FULL or opnet.part_of(name, 10) == TENTH


def net_of(database):
    """Returns a TestCase with a test for each entry of a database, and a test that all listed exceptions still occur."""

    class Net(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.known = opnet.known_types(database)
            works = opnet.works_of(database, is_full)
            what = "all" if FULL else f"tenth {TENTH} (XPUD_TEST_TENTH={TENTH} repeats it)"
            print(f"\n    {len(works)} items of {database}, with all samples: {what}", file=sys.stderr, flush=True)
            cls.results = opnet.run_all(works, int(os.environ.get("XPUD_JOBS") or len(os.sched_getaffinity(0))))

        def agrees(self, name):
            for work in (w for w in self.results if w.name == name):
                lines = list(described(work, unexplained(work, self.results[work])))
                if lines:
                    self.fail("\n".join(["differs from the CPU", *lines]))

        def test_exceptions_still_differ(self):
            mine = {e: r for e, r in EXCEPTIONS.items() if e[0] in self.known and e[2].startswith("compiled") == database.startswith("compiled")}
            gone = stale(self.results, self.known.__getitem__, mine)
            self.assertEqual(gone, [], "these no longer differ: remove them from opnet_exceptions.py")

    for name in opnet.known_types(database):
        setattr(Net, "test_" + name.replace(".", "_") + "_agrees_with_cpu", lambda self, name=name: self.agrees(name))
    return Net
