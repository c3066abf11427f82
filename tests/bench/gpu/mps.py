"""NVIDIA's Multi-Process Service, in folders of its own: only processes with its environment use it."""

import os
import pathlib
import shutil
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"


class Mps:
    def __init__(self):
        """Raises RuntimeError with the reason if MPS is missing or does not start."""
        if not shutil.which(CONTROL):
            raise RuntimeError(f"absent: there is no {CONTROL} here")
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="xpud-mps-"))
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self._folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log")}
        for path in self.env.values():
            pathlib.Path(path).mkdir()
        started = subprocess.run([CONTROL, "-d"], env=os.environ | self.env, capture_output=True, text=True, timeout=30)
        if started.returncode != 0:
            shutil.rmtree(self._folder)
            raise RuntimeError(f"it does not start: {(started.stdout + started.stderr).strip()}")

    def servers(self) -> str:
        """The processes that serve clients; empty until the first client."""
        return self._control("get_server_list").strip()

    def log(self) -> str:
        return "\n".join(path.read_text()[-1000:] for path in sorted((self._folder / "log").glob("*.log")))

    def close(self) -> None:
        """Called after its clients have ended."""
        self._control("quit")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _control(self, command: str) -> str:
        return subprocess.run([CONTROL], input=command + "\n", env=os.environ | self.env, capture_output=True, text=True,
                              timeout=30).stdout
