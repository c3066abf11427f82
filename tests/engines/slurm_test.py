"""Slurm gives out parts of a device: real munged, slurmctld and slurmd, a daemon and the agent. Jobs run as nobody."""

import os
import signal
import subprocess
import time

from cluster import BINARIES, wait_until
from slurm_cluster import USER, SlurmTest, enter_namespaces, why_not

RUNS = f"{BINARIES}/xpud_pipeline 100000000 16"  # has a session, and works until it is ended
WORKS = f"{BINARIES}/xpud_pipeline 4 16"
# What a program finds at the socket of clients.
CONNECT = """/usr/bin/python3 -c '
import socket, sys
try: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])
except OSError as error: print("refused", error.strerror)
else: print("connected")
' """


def setUpModule():
    if why_not():
        raise RuntimeError(why_not())
    enter_namespaces()


class ShareTest(SlurmTest):
    def wait_for_sessions(self, job: int, count: int) -> None:
        def claims():
            return [session.get("claim") for session in self.daemon.sessions()]
        wait_until(lambda: claims() == [f"slurm-{job}"] * count, 60, lambda: f"{claims()}\n{self.slurm.output(job)}")

    def test_three_jobs_have_their_shares_and_a_fourth_waits(self):
        jobs = {share: self.slurm.submit("sleep 300", f"--gres=xpud:{share}") for share in (50, 30, 20)}
        for share, job in jobs.items():
            claim = self.claim_of(job)
            self.assertEqual((claim["weight"], claim["time_least"], claim["class"]), (share, 95 * share, "interactive"))
            self.assertEqual(claim["labels"], {"engine": "slurm", "job": str(job), "user": "nobody"})
            self.slurm.wait_for(job, "RUNNING")
        fourth = self.slurm.submit("sleep 300", "--gres=xpud:1")
        time.sleep(2)
        self.assertEqual(self.slurm.state(fourth), "PENDING")
        self.assertNotIn(f"slurm-{fourth}", self.claims())
        self.slurm.ask("scancel", jobs[20])
        wait_until(lambda: f"slurm-{jobs[20]}" not in self.claims(), 3, "the claim is gone")
        self.assertEqual(self.claim_of(fourth)["weight"], 1)

    def test_a_program_has_the_claim_and_nothing_else_at_its_socket(self):
        job = self.slurm.submit(f"{WORKS} && grep ' /run/xpud ' /proc/self/mounts; touch /run/xpud/x; {RUNS}", "--gres=xpud:30", "--xpud-memory=1GiB",
                                "--xpud-class=batch")
        claim = self.claim_of(job)
        self.assertEqual((claim["class"], int(claim["memory_least_bytes"]), int(claim["memory_most_bytes"])), ("batch", 1 << 30, 1 << 30))
        self.wait_for_sessions(job, 1)
        wait_until(lambda: "Read-only" in self.slurm.output(job), 20, lambda: self.slurm.output(job))
        output = self.slurm.output(job)
        for flag in ("ro", "nosuid", "nodev", "noexec"):
            self.assertRegex(output, rf"\b{flag}\b")
        self.slurm.ask("scancel", job)
        wait_until(lambda: not self.claims() and not self.daemon.sessions(), 5, "the session is gone")

    def test_a_job_without_a_share_finds_nothing(self):
        job = self.slurm.submit(f"ls -A /run/xpud; {CONNECT} /run/xpud/xpud.sock")
        self.slurm.wait_for(job, "COMPLETED")
        self.assertEqual(self.slurm.output(job), "refused No such file or directory\n")
        self.assertEqual(self.claims(), {})
        counts = {name: value for name, value in self.agent.metrics().items() if name.startswith("xpud_agent_claims")}
        self.assertEqual(counts, {'xpud_agent_claims{engine="grants"}': 0, 'xpud_agent_claims{engine="slurm"}': 0})

    def test_each_task_of_an_array_has_its_claim(self):
        array = self.slurm.submit("sleep 300", "--gres=xpud:10", "--array=3-5", "--xpud-class=batch")
        wait_until(lambda: len(self.claims()) == 3, 20, lambda: str(self.claims()))
        self.assertEqual(sorted(claim["labels"]["array"] for claim in self.claims().values()), [f"{array}_{task}" for task in (3, 4, 5)])
        self.assertEqual({(claim["weight"], claim["class"]) for claim in self.claims().values()}, {(10, "batch")})
        self.slurm.ask("scancel", f"{array}_4")
        wait_until(lambda: len(self.claims()) == 2, 3, "one claim is gone")

    def test_steps_and_tasks_share_the_claim_of_their_job(self):
        job = self.slurm.submit(f"srun -n 2 --overlap {RUNS} & srun -n 1 --overlap {RUNS} & wait", "-n", "3", "--gres=xpud:40")
        self.wait_for_sessions(job, 3)

    def test_an_interactive_step_has_the_claim(self):
        done = self.slurm.try_ask("srun", "--gres=xpud:5", "bash", "-c", f"{WORKS}; {CONNECT} /run/xpud/xpud.sock", user=True)
        self.assertIn("connected", done.stdout, done.stderr)

    def test_a_requeued_job_has_a_claim_again(self):
        job = self.slurm.submit(f"echo began; {WORKS} && echo worked; sleep 300", "--gres=xpud:25", "--requeue", "--open-mode=append", "--xpud-memory=64MiB")
        self.claim_of(job)
        wait_until(lambda: "worked" in self.slurm.output(job), 30, lambda: self.slurm.output(job))
        self.slurm.ask("scontrol", "requeue", job)
        wait_until(lambda: not self.claims(), 10, "the claim of the first run is gone")
        wait_until(lambda: self.slurm.output(job).count("worked") == 2, 60, lambda: f"{self.slurm.state(job)} {self.slurm.output(job)}")
        self.assertEqual(int(self.claim_of(job)["memory_most_bytes"]), 64 << 20)

    def test_a_suspended_job_is_paused(self):
        job = self.slurm.submit(RUNS, "--gres=xpud:25")
        self.wait_for_sessions(job, 1)
        self.slurm.ask("scontrol", "suspend", job)
        wait_until(lambda: self.claim_of(job).get("paused"), 15, lambda: str(self.claims()))
        self.agent.stop(signal.SIGKILL)
        self.agent.start()
        time.sleep(5)
        self.assertTrue(self.claim_of(job)["paused"], "the next agent knows")
        self.slurm.ask("scontrol", "resume", job)
        wait_until(lambda: not self.claim_of(job).get("paused"), 15, lambda: str(self.claims()))
        self.assertNotIn("suspended", self.claim_of(job)["labels"])

    def test_many_jobs_at_once_have_a_claim_each(self):
        array = self.slurm.submit("sleep 300", "--gres=xpud:1", "--array=1-40")
        wait_until(lambda: len(self.claims()) == 40, 60, lambda: str(len(self.claims())))
        self.assertEqual({claim["time_least"] for claim in self.claims().values()}, {95})
        self.slurm.ask("scancel", array)
        wait_until(lambda: not self.claims(), 30, lambda: str(len(self.claims())))


class HostileTest(SlurmTest):
    PLUGIN_ARGUMENTS = "max_class=batch max_memory_per_share=10MiB"
    LIMITS = {"best-class": "batch", "memory-per-share": "10MiB"}

    def test_wrong_options_are_refused_at_submission(self):
        for options, why in ((("--xpud-memory=lots",), '"lots" is not a size; use a number with a unit'), (("--xpud-memory=12",), '"12" is not a size'),
                             (("--xpud-memory=2GiB",), "more than this cluster allows"), (("--xpud-class=urgent",), "use realtime, interactive or batch"),
                             (("--xpud-class=interactive",), "the best class of this cluster is batch"), (("--gres=xpud:200",), "not available")):
            for command in (("sbatch", "--wrap=true"), ("srun", "true"), ("salloc", "true")):
                done = self.slurm.try_ask(command[0], *options, *command[1:], user=True)
                self.assertNotEqual(done.returncode, 0, (command, options))
                self.assertIn(why, done.stderr, (command, options))
        self.assertEqual(self.slurm.try_ask("squeue", "--noheader").stdout, "")

    def test_variables_that_a_user_sets_do_not_drain_the_node(self):
        job = self.slurm.submit(f"{WORKS} && echo worked; sleep 300", "--gres=xpud:10",
                                env={"SPANK_XPUD_MEMORY": "lots", "SPANK_XPUD_CLASS": "realtime", "XPUD_MEMORY": "x", "SLURM_JOB_ID": "1"})
        claim = self.claim_of(job)
        self.assertEqual((claim["class"], claim["weight"]), ("batch", 10))
        wait_until(lambda: "worked" in self.slurm.output(job), 30, lambda: self.slurm.output(job))

    def test_memory_beyond_the_share_is_limited_and_the_user_reads_it(self):
        job = self.slurm.submit("sleep 300", "--gres=xpud:10", "--xpud-memory=900MiB")
        self.assertEqual(int(self.claim_of(job)["memory_most_bytes"]), 100 << 20)
        wait_until(lambda: "is limited to" in self.slurm.output(job), 10, lambda: self.slurm.output(job))

    def test_a_user_gets_no_other_claim_and_not_the_ordinary_socket(self):
        victim = self.slurm.submit("sleep 300", "--gres=xpud:60")
        self.claim_of(victim)
        theirs = f"/run/xpud/claims/slurm-{victim}/xpud.sock"
        places = (theirs, f"/proc/1/root{theirs}", f"/var/run/xpud/claims/slurm-{victim}/xpud.sock", "/run/xpud/control.sock", f"/run/xpud-slurm/{victim}")
        script = "".join(f"{CONNECT} {place}\n" for place in places)
        script += f"unshare -Urm umount /run/xpud && echo uncovered\n{CONNECT} /run/xpud/xpud.sock\n"
        job = self.slurm.submit(script, "--gres=xpud:10", env={"XPUD_ADDRESS": theirs, "SLURM_JOBID": str(victim)})
        self.slurm.wait_for(job, "COMPLETED")
        output = self.slurm.output(job)
        self.assertEqual(output.count("refused"), len(places), output)
        self.assertEqual(output.count("connected"), 1, output)
        self.assertNotIn("uncovered", output)
        outside = subprocess.run(f"{CONNECT} /run/xpud/xpud.sock; {CONNECT} {theirs}", shell=True, user=USER.pw_uid, group=USER.pw_gid, extra_groups=[],
                                 capture_output=True, text=True, cwd="/")
        self.assertEqual(outside.stdout.count("refused Permission denied"), 2, outside)

    def test_a_name_like_an_allocation_gets_no_claim(self):
        for name in ("x Nodes=node-1 CPU_IDs=0 Mem=0 GRES=xpud:100 ", "x\nJobId=7 y"):
            job = self.slurm.submit("echo ran", "--gres=xpud:1", f"--job-name={name}")
            self.slurm.wait_for(job, "FAILED", "NODE_FAIL", "COMPLETED")
            self.assertNotIn("ran", self.slurm.output(job))
            self.assertIn("no part of a device", self.slurm.output(job))

    def test_users_cannot_begin_or_end_claims(self):
        for action in ("prolog", "epilog"):
            done = subprocess.run([BINARIES / "xpud-slurm", action, "--notes", self.folder / "notes"], user=USER.pw_uid, group=USER.pw_gid, extra_groups=[],
                                  capture_output=True, text=True, cwd="/", env={"SLURM_JOB_ID": "77", "SLURM_JOB_UID": "0"})
            self.assertIn(f"does not serve Slurm at /run/xpud-agent/agent.sock for uid {USER.pw_uid}", done.stderr)


class KillTest(SlurmTest):
    def test_what_slurmd_missed_is_put_right(self):
        job = self.slurm.submit("sleep 300", "--gres=xpud:20")
        other = self.slurm.submit("sleep 300", "--gres=xpud:20")
        before = [self.claim_of(each) for each in (job, other)]
        self.slurm.kill("slurmd")
        self.slurm.end_steps(job)
        self.slurm.ask("scancel", job)
        self.slurm.start_slurmd()
        wait_until(lambda: list(self.claims()) == [f"slurm-{other}"], 30, lambda: f"{list(self.claims())} {self.slurm.state(job)}")
        self.assertEqual(self.claim_of(other)["door"], before[1]["door"])
        self.assertEqual(self.slurm.state(other), "RUNNING")

    def test_claims_of_jobs_that_ended_without_an_epilog_go(self):
        self.daemon.ask("claim", "create", "slurm-999999", "--label", "engine=slurm")
        self.daemon.ask("claim", "create", "other", "--weight", "7")
        job = self.slurm.submit("sleep 300", "--gres=xpud:20", "--xpud-memory=32MiB")
        wanted = self.claim_of(job)
        self.daemon.ask("claim", "delete", f"slurm-{job}")
        self.agent.process.send_signal(signal.SIGHUP)
        wait_until(lambda: sorted(self.claims()) == ["other", f"slurm-{job}"], 10, lambda: str(list(self.claims())))
        again = self.claim_of(job)
        for field in ("weight", "time_least", "memory_least_bytes", "labels"):
            self.assertEqual(again[field], wanted[field], field)
        self.daemon.ask("claim", "delete", "other")

    def test_an_agent_that_was_away_finds_what_has_changed(self):
        job = self.slurm.submit("sleep 300", "--gres=xpud:20")
        stays = self.slurm.submit("sleep 300", "--gres=xpud:20")
        for each in (job, stays):
            self.claim_of(each)
        self.agent.stop(signal.SIGKILL)
        self.slurm.ask("scancel", job)
        self.slurm.wait_for(job, "CANCELLED")
        none = self.slurm.submit("echo ran")
        self.slurm.wait_for(none, "COMPLETED")  # a job without a share does not wait for the agent
        late = self.slurm.submit(f"{WORKS} && echo worked; sleep 300", "--gres=xpud:30")
        time.sleep(3)
        self.assertNotIn(f"slurm-{late}", self.claims())
        self.agent.start()
        wait_until(lambda: sorted(self.claims()) == sorted([f"slurm-{stays}", f"slurm-{late}"]), 20, lambda: str(list(self.claims())))
        wait_until(lambda: "worked" in self.slurm.output(late), 30, lambda: self.slurm.output(late))

    def test_a_job_without_its_claim_fails_and_says_why(self):
        self.agent.stop(signal.SIGKILL)
        try:
            job = self.slurm.submit("echo ran", "--gres=xpud:20")
            self.slurm.wait_for(job, "FAILED")
        finally:
            self.agent.start()
        self.assertIn("xpud-node-agent does not answer", self.slurm.output(job))
        self.assertNotIn("ran", self.slurm.output(job))

    def test_a_controller_that_does_not_answer_the_agent_fails_the_job_alone(self):
        scontrol = self.slurm.folder / "scontrol"
        works = scontrol.read_text()
        scontrol.write_text("#!/bin/sh\nexec sleep 300\n")
        try:
            job = self.slurm.submit("echo ran", "--gres=xpud:20")
            self.slurm.wait_for(job, "FAILED")
        finally:
            scontrol.write_text(works)
        self.assertIn("scontrol has not ended for 8000 ms", self.slurm.output(job))

    def test_more_than_the_daemon_can_guarantee_fails_the_job_alone(self):
        self.daemon.ask("claim", "create", "other", "--time", "50%..")
        try:
            job = self.slurm.submit("echo ran", "--gres=xpud:60")
            self.slurm.wait_for(job, "FAILED")
        finally:
            self.daemon.ask("claim", "delete", "other")
        self.assertIn("no part of a device", self.slurm.output(job))
