"""The table of environment variables, and docs/environment.md, which is made from it.

    python3 tools/checks/environment.py            writes docs/environment.md
    python3 tools/checks/environment.py --check    says what is missing in the table, and whether the page is stale

`tools/lint/environment_test.py` does the latter. To add a variable: a row in TABLE, then write the page.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/environment.md"


@dataclasses.dataclass(frozen=True)
class Variable:
    name: str
    readers: str
    values: str
    default: str
    what: str


@dataclasses.dataclass(frozen=True)
class Part:
    title: str
    introduction: str
    variables: tuple[Variable, ...]


CLIENTS = "clients"
PROGRAMS = "clients, `xpuctl`"
CREDENTIALS = "`xpud-connect`, `xpuctl`"
LIBRARIES = "daemon, executors"
DRIVER = "`libze_xpud.so`"

TABLE = (
    Part("Clients", "Clients are programs with `libxpud`, the Python client or PyTorch (`sdk/`). An empty value counts as unset, except for `XPUD_VISIBLE_DEVICES`.", (
        Variable("XPUD_ADDRESS", PROGRAMS, "path of a socket, or HOST:PORT of an `xpud-gateway`", "`/run/xpud/xpud.sock`, then the user's own daemon",
                 "The only daemon that is tried. Without it, a client starts a private daemon if it finds none."),
        Variable("XPUD_CLIENT_NAME", CLIENTS, "text, 63 bytes", "the name that the program gives, else the program's own", "The session's name in `xpuctl`."),
        Variable("XPUD_CONNECT", CLIENTS, "path", "beside the library, then on `PATH`", "The program `xpud-connect`, which a client starts for a daemon on another machine."),
        Variable("XPUD_DAEMON", CLIENTS, "path", "beside the library, then on `PATH`", "The program `xpud`, which a client starts as its private daemon."),
        Variable("XPUD_NICE", CLIENTS, "a number from 0 to 19", "0", "How far sessions are lowered among those of their user or claim: each step is a fifth less of a device's time."),
        Variable("XPUD_RECONNECT_SECONDS", CLIENTS, "a number, 0 or more", "`ConnectOptions::reconnect`, which is 0",
                 "How long a remote session tries to resume after its connection was lost."),
        Variable("XPUD_TLS_CA", CREDENTIALS, "path of a PEM file", "no TLS", "The authorities that may have signed the gateway's certificate."),
        Variable("XPUD_TLS_CERT", CREDENTIALS, "path of a PEM file", "none", "The client's certificate. Set it with `XPUD_TLS_KEY` and `XPUD_TLS_CA`."),
        Variable("XPUD_TLS_KEY", CREDENTIALS, "path of a PEM file, mode 0600", "none", "The key of that certificate."),
        Variable("XPUD_TOKEN_FILE", CREDENTIALS, "path of a file, mode 0600", "no token", "The token that the gateway asks for."),
        Variable("XPUD_VISIBLE_DEVICES", CLIENTS, "numbers, separated by commas", "all devices",
                 "The daemon's devices that the program sees, in this order. The list ends at the first entry that is no device; empty, it selects none."),
        Variable("PATH", CLIENTS, "folders", "", "Where `xpud` and `xpud-connect` are looked for."),
        Variable("TMPDIR", PROGRAMS, "folder", "`/tmp`", "Its folder `xpud-UID` has the sockets of the user's daemon if `XDG_RUNTIME_DIR` cannot be used."),
        Variable("XDG_RUNTIME_DIR", PROGRAMS, "folder", "`TMPDIR`", "Its folder `xpud` has the sockets of the user's daemon."),
    )),
    Part("PyTorch", "For `device=\"xpud\"` (`sdk/torch`), in addition to those of clients.", (
        Variable("XPUD_FALLBACK", "`torch_xpud`", "`warn`, `error`", "`warn`", "What happens if xpud has no kernel for an operator: it runs on the CPU with a warning, or fails."),
        Variable("XPUD_NULL_DEVICE", "`torch_xpud`", "`1`", "off", "Runs without a daemon: commands are dropped, and reads return zeros. Measures the overhead of Python and PyTorch."),
        Variable("XPUD_TRANSLATE", "`torch_xpud`", "folder", "off", "Set by `python -m torch_xpud` for child processes: the folder of the program that they translate."),
        Variable("ACCELERATE_TORCH_DEVICE", "`torch_xpud`", "a device", "", "accelerate's own. If it is set, transformers' choice of a device is left alone."),
        Variable("ACCELERATE_USE_CPU", "`torch_xpud`", "`1`, `true`, `yes`", "off", "accelerate's own. Then transformers uses the CPU."),
        Variable("WORLD_SIZE", "`torch_xpud`", "a number", "`1`",
                 "A launcher's number of processes. With more than one, accelerate is refused: xpud has no collectives. Likewise `PMI_SIZE`, `OMPI_COMM_WORLD_SIZE`, `MV2_COMM_WORLD_SIZE`."),
    )),
    Part("Daemon", "The daemon's settings are options and a configuration file (`xpud --help`, `xpuctl config example`), not variables. "
         "It reads what the service manager sets, and where the user keeps caches.", (
        Variable("HOME", "daemon, `xpuctl`", "folder", "", "Has `.cache/xpud`, the cache of compiled kernels."),
        Variable("XDG_CACHE_HOME", "daemon, `xpuctl`, `tools/test`", "folder", "`~/.cache`", "Has `xpud`, the cache of compiled kernels, and of clean files of clang-tidy."),
        Variable("JOURNAL_STREAM", "daemon", "set by systemd", "", "If standard error is the journal, log lines have priorities and no time."),
        Variable("LISTEN_FDS", "daemon", "set by systemd", "", "The number of sockets that the daemon was given. With `LISTEN_PID` and `LISTEN_FDNAMES`."),
        Variable("LISTEN_FDNAMES", "daemon", "set by systemd", "", "The names of these sockets: `clients` and `control`."),
        Variable("LISTEN_PID", "daemon", "set by systemd", "", "The process that the sockets are for."),
        Variable("NOTIFY_SOCKET", "daemon", "set by systemd", "", "Where the daemon reports that it is ready and alive."),
        Variable("WATCHDOG_PID", "daemon", "set by systemd", "", "The process that must report that it is alive."),
        Variable("WATCHDOG_USEC", "daemon", "set by systemd", "no watchdog", "The longest time between two reports, in microseconds."),
    )),
    Part("Node agent", "The settings of `xpud-node-agent` are in its configuration file. It reads what Kubernetes sets for each pod.", (
        Variable("XPUD_NODE_NAME", "`xpud-node-agent`", "name", "`node` of the configuration, else the host's name", "This machine's name for the engines."),
        Variable("KUBERNETES_SERVICE_HOST", "`xpud-node-agent`", "set by Kubernetes", "", "The API server's address, unless the configuration names one."),
        Variable("KUBERNETES_SERVICE_PORT", "`xpud-node-agent`", "set by Kubernetes", "", "Its port."),
    )),
    Part("Clients of the node agent", "Programs that ask `xpud-node-agent` for grants at its local socket.", (
        Variable("XPUD_AGENT_SOCKET", "`xpuctl grant`, `xpud_ray`", "path", "`/run/xpud-agent/agent.sock`", "The socket of `xpud-node-agent` for users."),
    )),
    Part("Ray", "Read by the plugin of `deploy/ray`. Set them for `ray start`.", (
        Variable("XPUD_RAY_LEASE_SECONDS", "`xpud_ray`", "1 to 3600", "60",
                 "How long a claim stays when Ray's processes hang, or were killed and the agent cannot watch them. It is renewed at a third of this time."),
    )),
    Part("Drivers and vendors' libraries", "Set them for the daemon. Its confinement allows the folders of the libraries that they name.", (
        Variable("XPUD_BACK_ENDS", DRIVER, "of `cpu`, `cuda`, separated by commas", "all", "The back ends that the driver offers. The daemon and its executor processes set it for themselves."),
        Variable("XPUD_CPU_DEVICES", DRIVER, "1 to 16", "1", "Divides the CPU among several devices, for tests. `xpud --test-devices N` sets it."),
        Variable("XPUD_CPU_PCI", DRIVER, "addresses, separated by commas", "not on PCI", "What the CPU devices say as their addresses on PCI. For tests."),
        Variable("XPUD_CPU_PLAIN", DRIVER, "`1`", "off", "The CPU's driver offers API 1.3 and none of our extensions, like another vendor's. For tests."),
        Variable("XPUD_CPU_WORKERS", DRIVER, "1 to 1024", "the CPUs of the affinity mask and the control group", "The number of the CPU device's threads."),
        Variable("XPUD_CUDA_LIBRARY", DRIVER + ", daemon, `xpuctl doctor`", "path or name; empty: no CUDA", "`libcuda.so.1`", "NVIDIA's driver library."),
        Variable("XPUD_CUBLASLT", LIBRARIES, "path", "looked for", "The file of cuBLASLt."),
        Variable("XPUD_CUDNN", LIBRARIES, "path", "looked for", "The file of cuDNN 9."),
        Variable("XPUD_CUPTI", LIBRARIES, "path", "looked for", "The file of CUPTI, which measures kernels for profiles."),
        Variable("XPUD_NVRTC", LIBRARIES, "path", "looked for", "The file of NVRTC, which cuDNN needs."),
        Variable("LD_LIBRARY_PATH", LIBRARIES, "folders", "", "The dynamic linker's. The daemon's confinement allows these folders."),
        Variable("VIRTUAL_ENV", LIBRARIES, "folder", "", "A Python environment. NVIDIA's libraries are looked for in its packages first."),
        Variable("ZE_ENABLE_ALT_DRIVERS", LIBRARIES, "libraries, separated by commas", "ours and, with an Intel GPU, Intel's",
                 "Level Zero's loader opens these drivers. The daemon sets it unless it is set."),
    )),
    Part("Tools and builds", "CMake's own variables (`-DXPUD_CLIENT_ONLY=ON`) are options, not environment variables.", (
        Variable("XPUD_JOBS", "`tools/*`, tests", "a number", "the cores", "The number of jobs of builds and tests at the same time."),
        Variable("CXX", "`pip install sdk/python`, `build_torch_xpud.py`", "a C++20 compiler", "`clang++-22`, `c++`", "Builds the Python client, or the PyTorch package on another machine."),
        Variable("PYTHONPATH", "`tools/bench`", "folders", "", "Python's own. The benchmarks' folders are put before it."),
        Variable("TERM", "`xpuctl top`", "a terminal", "", "The kind of terminal. `top` redraws in place, unless it is `dumb`."),
    )),
    Part("Tests", "Tests and `tools/test` set most of them. They are no interface: they may change.", (
        Variable("XPUD_TEST_ARTIFACTS", "`test_inductor_edges`", "file", "", "Where its programs keep what torch.compile made."),
        Variable("XPUD_TEST_CACHE", "`tests/e2e`, `tests/conformance`, kernels' tests", "folder", "none that outlives a test",
                 "The cache of compiled kernels, for C++ tests and the daemons that they start. `tools/test` sets it."),
        Variable("XPUD_TEST_DAEMON_FLAGS", "`tests/e2e`, `tests/conformance`", "options", "`--device cpu`", "Options of the daemons that C++ tests start."),
        Variable("XPUD_TEST_DOUBLES", "kernels' tests", "`0`", "on", "`0`: kernels compute doubles with integers, as on a device without them."),
        Variable("XPUD_TEST_FULL", "tests", "set", "off", "Slow tests run completely. `tools/test --full` sets it."),
        Variable("XPUD_TEST_NAME", "tools/test", "text", "", "Runs only tests whose names contain it. `tools/test -k` sets it."),
        Variable("XPUD_TEST_IMPORT_FD", "drivers' tests", "set by the test", "", "Tells a child process which memory to import."),
        Variable("XPUD_TEST_LIBRARIES", "kernels' tests", "`0`", "on", "`0`: the kernels' tests on a GPU use no vendor's library."),
        Variable("XPUD_TEST_LOOK", "drivers' tests", "set by the test", "", "Tells a child process how to look for a lost device."),
        Variable("XPUD_TEST_REMOTE", "`tests/e2e`, `tests/conformance`", "set", "off", "C++ clients go through a gateway. `tools/test remote` sets it."),
        Variable("XPUD_TEST_TARGET", "kernels' tests", "`nvptx`", "the CPU", "Runs the kernels' tests on an NVIDIA GPU."),
        Variable("XPUD_TEST_TENTH", "PyTorch's tests", "0 to 9", "changes daily", "The tenth of operators that run with all samples."),
        Variable("XPUD_TEST_THREADS_LEFT", "`tests/conformance`", "set by the test", "", "The file that limits how many threads a process may start."),
        Variable("XPUD_BUILD", "`tests/package`", "folder", "`build/release`", "The build whose install rules are tested."),
        Variable("XPUD_LIBRARY", "`tests/package`", "path", "`build/release/lib/libxpud.so`", "The library that is tested."),
        Variable("XPUD_CAPTURE", "`tests/fuzz/capture.py`", "set by the tool", "", "Where the observer keeps what it sees."),
        Variable("XPUD_ECOSYSTEM_REPORT", "`tests/ecosystem`", "path", "none", "The file that gets each program's fallbacks. `tools/test ecosystem` sets it."),
        Variable("XPUD_FAKE_CUDA", "drivers' tests", "`old`, `init`, `none`", "usable", "How the tests' stand-in of CUDA's driver fails."),
        Variable("XPUD_INJECT_PLAN", "`tests/inject`", "set by the test", "", "The file that says which call of Level Zero fails."),
        Variable("XPUD_INJECT_SEED", "`tests/inject`", "a number", "random", "Repeats a run; its first line prints the number."),
        Variable("ONEDNN_MAX_CPU_ISA", "PyTorch's tests", "oneDNN's names", "the CPU's own", "oneDNN's own: the newest instructions that it uses. The tests try older ones."),
    )),
    Part("Benchmarks", "`tools/bench` sets those that `tests/bench` reads.", (
        Variable("XPUD_BENCH_BINARIES", "`tests/bench`", "folder", "", "The programs of the build or bundle."),
        Variable("XPUD_BENCH_ECHO", "`tests/bench`", "HOST:PORT", "", "The server of plain TCP, the baseline of `remote`."),
        Variable("XPUD_BENCH_LOGS", "`tests/bench`", "folder", "", "Where the logs of the daemons go."),
        Variable("XPUD_BENCH_PLAIN", "`tests/bench`", "`cpu`, `cuda`", "", "The device of plain PyTorch, the baseline."),
        Variable("XPUD_BENCH_PROCESSOR", "`kernels/library` `gpu_benchmark`", "`sm_90` and others", "the GPU's own", "Measures attention's kernels of an older processor."),
        Variable("XPUD_BENCH_SMOKE", "`tests/bench`", "set", "off", "Runs briefly. `tools/bench --smoke` sets it."),
        Variable("XPUD_BENCHMARK_DRIVER", "`launch_benchmark`", "`cuda`", "the CPU's", "The driver that is measured."),
    )),
)  # fmt: skip

# Names of the sources that are no variables of ours.
MADE_UP = {"XPUD_PROBE", "XPUD_MEMORY"}  # client_test.cc's own; slurm_test.py sets one that nobody reads
NOT_SEARCHED = {"tools/checks/environment.py", "tools/lint/environment_test.py"}

CODE, PYTHON, SHELL, CMAKE = re.compile(r"\.(cc|h)$"), re.compile(r"\.py$"), re.compile(r"\.sh$|^tools/\w+$|^\.ci/"), re.compile(r"CMakeLists\.txt$|\.cmake$")
NAME = r"([A-Z][A-Z0-9_]+)"
SETTING = re.compile(r"""(?:un)?setenv\(\s*"\w+"|environ(?:\[["']\w+["']\]\s*=(?!=)|\.(?:pop|setdefault)\(["']\w+["'])|["']\w+["']\s*:(?=[^:])""")
QUOTED = re.compile(rf"""["']{NAME}["']""")
READING = re.compile(rf"""(?:getenv\(|TakeVariable\(|\bEnvironment\(|ReadVariable\(|IsOff\(|environ\.get\(|environ\[)\s*["']{NAME}["']""")
SHELL_USE, SHELL_SET = re.compile(r"\$\{?(XPUD_[A-Z0-9_]+)"), re.compile(r"\b(XPUD_[A-Z0-9_]+)=(?!\$\{\1)")
CMAKE_USE = re.compile(rf"ENV\{{{NAME}\}}")


def files() -> list[str]:
    return subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def names_in(path: str, text: str) -> tuple[set[str], set[str]]:
    """Returns the variables that a file may read, and those that the table must have: our own, also where they are only set, and others that are read."""
    if CMAKE.search(path):
        found = set(CMAKE_USE.findall(text))
        return found, found
    if SHELL.search(path):
        found = set(SHELL_USE.findall(text)) - set(SHELL_SET.findall(text))
        return found, found
    if not CODE.search(path) and not PYTHON.search(path):
        return set(), set()
    without = SETTING.sub("", text)
    quoted = set(QUOTED.findall(text))
    return set(QUOTED.findall(without)), {name for name in quoted if name.startswith("XPUD_")} | set(READING.findall(without))


def names() -> tuple[set[str], set[str]]:
    """As names_in, for all files. Shell variables that tools/lib/common.sh sets for the scripts that source it are none of the environment."""
    read, needed = set(), set()
    common = set(SHELL_SET.findall((ROOT / "tools/lib/common.sh").read_text()))
    for path in files():
        if path in NOT_SEARCHED or not any(kind.search(path) for kind in (CODE, PYTHON, SHELL, CMAKE)) or not (ROOT / path).is_file():
            continue
        text = (ROOT / path).read_text(errors="replace")
        reads, needs = names_in(path, text)
        if SHELL.search(path):
            reads, needs = reads - common, needs - common
        read |= reads
        needed |= needs
    return read, needed - MADE_UP


def complaints() -> list[str]:
    listed = [variable.name for part in TABLE for variable in part.variables]
    read, needed = names()
    return ([f"{name} is read in the sources, and tools/checks/environment.py has no row for it" for name in sorted(needed - set(listed))]
            + [f"{name} is in tools/checks/environment.py, and no source reads it" for name in sorted(set(listed) - read)]
            + [f"{name} has two rows" for name in sorted({name for name in listed if listed.count(name) > 1})])


def page() -> str:
    lines = ["<!-- made by tools/checks/environment.py from its table, do not edit -->", "# Environment variables", "",
             "All variables that xpud's programs, libraries, tools and tests read."]
    for part in TABLE:
        lines += ["", f"## {part.title}", "", *wrapped(part.introduction), "", "| name | read by | values | default | what it does |", "|---|---|---|---|---|"]
        lines += [f"| `{each.name}` | {each.readers} | {each.values} | {each.default} | {each.what} |" for each in part.variables]
    return "\n".join(lines) + "\n"


def wrapped(text: str, width: int = 160) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def main() -> int:
    found = complaints()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            found.append("docs/environment.md is stale; run python3 tools/checks/environment.py")
    elif not sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.exit(__doc__)
    print("\n".join(found) if found else f"environment: {sum(len(part.variables) for part in TABLE)} variables")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
