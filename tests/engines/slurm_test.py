"""Slurm gives out parts of a device: real munged, slurmctld and slurmd, a daemon and the agent."""

import os
import signal
import subprocess
import sys
import time
import unittest

from cluster import BINARIES, wait_until
from slurm_cluster import SlurmTest, enter_namespaces, why_not


def setUpModule():
    if why_not():
        raise RuntimeError(why_not())
    enter_namespaces()


class Try(SlurmTest):
    def test_x(self):
        job = self.slurm.submit("id; ls -la /run/xpud; sleep 2", "--gres=xpud:30", "--xpud-memory=1GiB", "--xpud-class=batch")
        self.slurm.wait_for(job, "COMPLETED", "FAILED")
        print(self.slurm.output(job), self.claims())
        subprocess.run("tail -50 %s/slurm/*.out %s/*/agent.log" % (self.folder, self.folder), shell=True)
