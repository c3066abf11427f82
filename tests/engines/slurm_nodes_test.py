"""Slurm gives out parts of the devices of two nodes: real munged, slurmctld and two slurmds, each with a daemon and an agent. Jobs run as nobody."""

from cluster import BINARIES, wait_until
from slurm_cluster import SECOND, SlurmTest, enter_namespaces, why_not

RUNS = f"{BINARIES}/xpud_pipeline 100000000 16"  # has a session, and works until it is ended
WORKS = f"{BINARIES}/xpud_pipeline 4 16"


def setUpModule():
    if why_not():
        raise RuntimeError(why_not())
    enter_namespaces()


class TwoNodesTest(SlurmTest):
    HAS_SECOND = True

    def sessions(self) -> tuple[list[str], list[str]]:
        """The claims of the sessions, by node."""
        with self.second.entered():
            second = self.second_daemon.sessions()
        return tuple([session.get("claim") for session in sessions] for sessions in (self.daemon.sessions(), second))

    def wait_for_claims(self, first: dict[int, int], second: dict[int, int]) -> None:
        """Waits until the nodes have claims of these jobs, with these shares."""
        def shares():
            return [{key: claim["weight"] for key, claim in claims.items()} for claims in (self.claims(), self.second_claims())]
        wanted = [{f"slurm-{job}": share for job, share in jobs.items()} for jobs in (first, second)]
        wait_until(lambda: shares() == wanted, 40, lambda: f"{shares()}, not {wanted}\n{self.slurm.log('slurmd')}\n{self.slurm.log(f'slurmd-{SECOND}')}")

    def wait_for_sessions(self, first: list[int], second: list[int]) -> None:
        wanted = tuple([f"slurm-{job}" for job in jobs] for jobs in (first, second))
        wait_until(lambda: self.sessions() == wanted, 40, lambda: f"{self.sessions()}, not {wanted}")

    def test_a_job_over_two_nodes_has_a_claim_on_each(self):
        job = self.slurm.submit(f"srun -N 2 -n 2 {RUNS}", "-N", "2", "-n", "2", "--gres=xpud:40", "--xpud-memory=64MiB")
        self.wait_for_claims({job: 40}, {job: 40})
        self.assertEqual({int(claims()[f"slurm-{job}"]["memory_most_bytes"]) for claims in (self.claims, self.second_claims)}, {64 << 20})
        self.wait_for_sessions([job], [job])
        self.slurm.ask("scancel", job)
        self.wait_for_claims({}, {})

    def test_a_heterogeneous_job_has_each_components_share_on_its_node(self):
        first = self.slurm.submit(f"srun --het-group=0,1 {RUNS}", "-w", "node-1", "-n", "1", "--gres=xpud:30", ":", "-w", SECOND, "-n", "1", "--gres=xpud:60")
        self.wait_for_claims({first: 30}, {first + 1: 60})
        self.wait_for_sessions([first], [first + 1])
        self.slurm.ask("scancel", first)
        self.wait_for_claims({}, {})

    def test_an_array_is_spread_over_the_nodes(self):
        array = self.slurm.submit("sleep 300", "--gres=xpud:60", "--array=1-2")
        wait_until(lambda: len(self.claims()) == 1 and len(self.second_claims()) == 1, 40, lambda: f"{self.claims()} {self.second_claims()}")
        labels = [claim["labels"]["array"] for claims in (self.claims(), self.second_claims()) for claim in claims.values()]
        self.assertEqual(sorted(labels), [f"{array}_1", f"{array}_2"])
        self.slurm.ask("scancel", array)

    def test_a_suspended_and_a_requeued_job_are_so_on_both_nodes(self):
        job = self.slurm.submit(f"srun -N 2 -n 2 {RUNS}", "-N", "2", "-n", "2", "--gres=xpud:25", "--requeue")
        self.wait_for_sessions([job], [job])

        def paused():
            return [bool(claims().get(f"slurm-{job}", {}).get("paused")) for claims in (self.claims, self.second_claims)]
        for action, wanted in (("suspend", True), ("resume", False)):
            self.slurm.ask("scontrol", action, job)
            wait_until(lambda wanted=wanted: paused() == [wanted] * 2, 20, lambda: f"{paused()} {self.slurm.state(job)}")
        self.slurm.ask("scontrol", "requeue", job)
        self.wait_for_claims({}, {})
        self.wait_for_sessions([job], [job])
        self.wait_for_claims({job: 25}, {job: 25})

    def test_a_node_whose_agent_is_away_fails_the_job_and_says_where(self):
        self.second_agent.stop()
        try:
            job = self.slurm.submit(f"srun -N 2 -n 2 --label {WORKS}", "-N", "2", "-n", "2", "--gres=xpud:20")
            self.slurm.wait_for(job, "FAILED", seconds=60)
        finally:
            with self.second.entered():
                self.second_agent.start()
        self.assertRegex(self.slurm.output(job), "has no part of a device on this node: .*xpud-node-agent does not answer")
        self.assertIn(f"srun: error: {SECOND}: ", self.slurm.output(job))
