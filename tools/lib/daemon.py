"""A daemon for a demo, benchmark or test: on a socket of its own, so that it disturbs no other daemon, and ended with its owner."""

import importlib.util
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile


def _environment() -> dict[str, str]:
    """Our library folder and, if this Python's PyTorch contains cuBLASLt, that one, so that both sides of a comparison use the same."""
    found = importlib.util.find_spec("nvidia")
    folders = map(pathlib.Path, found.submodule_search_locations or ()) if found else ()
    libraries = sorted(path for folder in folders for path in folder.glob("*/lib/libcublasLt.so.1[23]"))
    return ({"XPUD_CUBLASLT": str(libraries[-1])} if libraries else {}) | os.environ


class Daemon:
    def __init__(self, binaries: pathlib.Path, log: pathlib.Path, *options: str, program: pathlib.Path | None = None, address: pathlib.Path | None = None):
        """`program`: another program than the xpud among `binaries`. `address`: the socket, instead of one in a folder of its own."""
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="xpud-own-"))
        self._xpuctl = binaries / "xpuctl"
        self.address = address or self._folder / "xpud.sock"
        self.log = log
        self._command = [program or binaries / "xpud", "--socket", self.address, *options]
        log.parent.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Starts the daemon, again if it was killed."""
        ready, ready_child = os.pipe()
        with self.log.open("wb") as out:
            self._process = subprocess.Popen([*self._command, "--ready-fd", str(ready_child)],
                                             stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(), pass_fds=[ready_child])
        os.close(ready_child)
        with os.fdopen(ready, "rb") as pipe:
            if not pipe.read(1):
                raise RuntimeError(f"the daemon did not start; {self.log} says:\n{self.log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *arguments: str) -> str:
        """Returns what xpuctl prints."""
        done = subprocess.run([self._xpuctl, "--address", self.address, *arguments], capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise RuntimeError(f"xpuctl {' '.join(arguments)} exited with {done.returncode}: {done.stderr}")
        return done.stdout

    def devices(self) -> list[dict]:
        return json.loads(self.ask("devices", "-o", "json"))["devices"]

    def status(self) -> dict:
        return json.loads(self.ask("status", "-o", "json"))

    def sessions(self) -> list[dict]:
        return json.loads(self.ask("ps", "-o", "json"))["sessions"]

    def kill(self) -> None:
        """Kills the daemon, like a crash."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Waits for the end of a daemon that was signalled."""
        self._process.wait(10)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Gateway:
    """An xpud-gateway for a Daemon, on any free port."""

    def __init__(self, binaries: pathlib.Path, daemon: Daemon, folder: pathlib.Path, address: str = "127.0.0.1", within: list[str] = ()):
        """`within`: a command that runs the gateway in another network namespace, which has the address."""
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(16))
        ready, ready_child = os.pipe()
        with (folder / "gateway.log").open("wb") as out:
            self._process = subprocess.Popen([*within, binaries / "xpud-gateway", "--listen", f"{address}:0", "--socket", daemon.address, "--token-file", token,
                                              "--ready-fd", str(ready_child)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[ready_child])
        os.close(ready_child)
        with os.fdopen(ready) as pipe:
            port = pipe.readline().strip()
        if not port:
            raise RuntimeError(f"the gateway did not start:\n{(folder / 'gateway.log').read_text()[-2000:]}")
        # The environment that a client needs to connect.
        self.environment = {"XPUD_ADDRESS": f"{address}:{port}", "XPUD_TOKEN_FILE": str(token)}

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
