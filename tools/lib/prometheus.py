"""Debian's Prometheus and promtool for tests, with the files of deploy/monitoring."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

MONITORING = pathlib.Path(__file__).resolve().parents[2] / "deploy/monitoring"
ALERTS = MONITORING / "xpud-alerts.yml"


def need(*programs: str):
    missing = [program for program in programs if not shutil.which(program)]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)} (Debian's package prometheus)")


def promtool(*arguments, stdin: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, timeout=60)


class Prometheus:
    """A Prometheus of its own, configured by the file in deploy/monitoring except for the targets and the interval."""

    def __init__(self, folder: pathlib.Path, **targets: str):
        """`targets`: HOST:PORT for jobs of the file, by name with _ for -."""
        shutil.copy(ALERTS, folder)
        config = (MONITORING / "prometheus.yml").read_text().replace("scrape_interval: 15s", "scrape_interval: 1s")
        for job, target in targets.items():
            config, count = re.subn(rf'(job_name: {job.replace("_", "-")}\n.*\n.*\n *- targets: )\["[^"]+"\]', rf'\1["{target}"]', config)
            if count != 1:
                raise ValueError(f"{MONITORING}/prometheus.yml has no job {job}")
        (folder / "prometheus.yml").write_text(config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                              f"--web.listen-address={self.address}"], stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> dict | None:
        """Returns its answer, or None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.URLError:
            return None

    def query(self, expression: str) -> list[float]:
        answer = self.ask("query", query=expression)
        return [float(row["value"][1]) for row in answer["result"]] if answer else []

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
