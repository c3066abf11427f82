"""The stages of tools/test, in order. A stage is a function of its log; it returns a Tally or raises StageFailed."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import intel as intel_driver
import stage_environment
import tidy
from runner import ROOT, Log, Stage, StageFailed, Tally

sys.path.insert(0, str(ROOT / "tools/lib"))

from daemon import Daemon, Gateway  # noqa: E402

JOBS = os.environ.get("XPUD_JOBS") or str(len(os.sched_getaffinity(0)))
PYTHON = ROOT / ".venv/bin/python"
RELEASE = ROOT / "build/release"
# Compiled kernels of C++ tests, also of earlier runs: they are found by a hash of all that determines them.
KERNELS = tidy.CACHE.parent / "test-kernels"

# Debian's libraries are not instrumented, so races inside them are ignored.
SANITIZER_OPTIONS = {
    "asan-ubsan": {"ASAN_OPTIONS": "detect_container_overflow=0:detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"},
}


def sources() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.c", "*.h"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return [path for path in listed if (ROOT / path).exists()]


@contextlib.contextmanager
def own_daemon():
    """Yields an environment in which clients start a daemon of their own, and ends that daemon in the end."""
    with tempfile.TemporaryDirectory(prefix="xpud-test-") as folder:
        env = {"XDG_RUNTIME_DIR": folder, "XPUD_ADDRESS": "", "XPUD_DAEMON": str(RELEASE / "bin/xpud")}
        try:
            yield env
        finally:
            end_daemon(env)


def end_daemon(env: dict[str, str]) -> None:
    answer = subprocess.run([RELEASE / "bin/xpuctl", "status", "-o", "json"], env=os.environ | env, capture_output=True)
    if answer.returncode == 0:
        os.kill(json.loads(answer.stdout)["daemon"]["pid"], signal.SIGTERM)


# ---- building

def configure_and_build(log: Log, preset: str, *targets: str) -> None:
    if not (ROOT / f"build/{preset}/build.ninja").exists():
        log.must("cmake", "--preset", preset)
    log.must("cmake", "--build", f"build/{preset}", "-j", JOBS, "--target", *targets, timeout=3000)


def ctest(log: Log, preset: str, *arguments: str, env: dict[str, str] | None = None) -> Tally:
    """Runs as many tests together as there are cores; those that measure time are RUN_SERIAL."""
    wanted = os.environ.get("XPUD_TEST_NAME")
    kernels = {"XPUD_TEST_CACHE": str(KERNELS)} if preset == "release" else {}  # sanitizers watch the compiler, too
    _, output = log.run("ctest", "--test-dir", f"build/{preset}", "-j", JOBS, "--output-on-failure", "--no-tests=error",
                        *arguments, *(("-R", wanted) if wanted else ()), env=kernels | (env or {}))
    match = re.search(r"(\d+) tests? failed out of (\d+)", output)
    if not match and wanted:
        return Tally()
    if not match:
        raise StageFailed("ctest found no tests")
    failed, total = map(int, match.groups())
    return Tally(total - failed, failed, len(re.findall(r"^\[  SKIPPED \]", output, re.M)))


def unittests(log: Log, folder: str, env: dict[str, str] | None = None, patterns: tuple[str, ...] = ("*_test.py", "test_*.py"),
              together: int = 1, python: pathlib.Path | None = None) -> Tally:
    """Runs the unittest files of a folder, `together` at a time, each in a process of its own (a loaded torch_xpud cannot be unloaded). Several at
    a time have logs of their own. Files that say RUNS_ALONE run before the others, one at a time. `python` is .venv's by default."""
    files = sorted(path for pattern in patterns for path in (ROOT / folder).glob(pattern))
    if not files:
        raise StageFailed(f"no tests in {folder}")
    wanted = os.environ.get("XPUD_TEST_NAME")
    chosen = ()
    if wanted:
        files = [path for path in files if re.search(rf"def test\w*{re.escape(wanted)}|class \w*{re.escape(wanted)}", path.read_text())]
        chosen = ("-k", wanted)
    python = python or (PYTHON if PYTHON.exists() else "python3")

    def run(file: pathlib.Path) -> Tally:
        own = log if together == 1 else Log(f"{log.path.stem}-{file.stem}")  # the outputs must not mix
        status, output = own.run(python, "-m", "unittest", "-v", *chosen, file.stem, cwd=file.parent, env=env)
        ran = re.search(r"^Ran (\d+) test", output, re.M)
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", output))
        skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
        count = int(ran.group(1)) if ran else 0
        failed = max(bad, 1) if status else bad
        if own is not log and failed:
            log.write(own.path.read_text(errors="replace"))
        return Tally(max(count - failed - skipped, 0), failed, skipped)

    alone = [path for path in files if re.search(r"^RUNS_ALONE = True", path.read_text(), re.M)]
    tally = sum(map(run, alone), Tally())
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        return sum(pool.map(run, (path for path in files if path not in alone)), tally)


# ---- stages

def setup(log: Log) -> None:
    log.must("tools/setup", "--yes", timeout=3000)


def code_format(log: Log) -> None:
    log.must("clang-format-22", "--dry-run", "-Werror", *sources())


def lint(log: Log) -> Tally:
    log.must("python3", "tools/lint/include_lint.py")
    log.must("python3", "tools/lint/habit_lint.py")
    return Tally(passed=2) + unittests(log, "tools/lint") + unittests(log, "tools/lib")


def build(log: Log) -> None:
    configure_and_build(log, "release", "all")


def changed_lately(paths: list[str]) -> list[str]:
    """Returns those of `paths` that commits of the last twelve hours changed, or that are not committed, and the sources that include such a header.
    All of them, if there is no older commit."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    newest = int(git("log", "-1", "--format=%ct"))
    older = git("rev-list", "-1", f"--before={newest - 12 * 3600}", "HEAD").strip()
    if not older:
        return paths
    changed = {*git("diff", "--name-only", older).split(), *git("ls-files", "-o", "--exclude-standard").split()}
    headers = {f'#include "{path}"' for path in changed if path.endswith(".h")}
    return [path for path in paths if path in changed or headers.intersection((ROOT / path).read_text().splitlines())]


def clang_tidy(log: Log) -> None:
    tidy.run(log, sources() if os.environ.get("XPUD_TEST_FULL") else changed_lately(sources()), int(JOBS))


def unit(log: Log) -> Tally:
    return ctest(log, "release", "-LE", "e2e|inject|isolation")


def sanitizer(preset: str):
    def stage(log: Log) -> Tally:
        configure_and_build(log, preset, "xpud_tests")
        return ctest(log, preset, "-LE", "fuzz", env=SANITIZER_OPTIONS[preset])  # run by the stage fuzz
    return stage


def fuzz(log: Log) -> Tally:
    """Half a minute for each target, and as long as it takes to find the planted faults. With --full, the inputs are others each time."""
    results = ROOT / "build/asan-ubsan/fuzz.json"
    results.unlink(missing_ok=True)
    repeatable = () if os.environ.get("XPUD_TEST_FULL") else ("--repeatable",)
    _, output = log.run("tools/fuzz", "--seconds", "30", "--planted", *repeatable, "--jobs", JOBS, "--json", results, timeout=7200)
    if not results.exists():
        raise StageFailed("the fuzz targets could not be built")
    passed = [result["passed"] for result in json.loads(results.read_text())]
    print("    " + output[output.index("target "):].strip().replace("\n", "\n    "), flush=True)
    return Tally(passed.count(True), passed.count(False))


def links(log: Log) -> Tally:
    """Checks the dependencies, exports and size of the SDK's library, and that tools/setup builds what is installed."""
    configure_and_build(log, "release", "xpud_sdk")
    return unittests(log, "tests/package", patterns=("library_test.py", "install_rules_test.py"))


def install(log: Log) -> None:
    """Installs, then builds and runs programs that find the package as a user would: with CMake and with pkg-config."""
    prefix = ROOT / "build/installed"
    shutil.rmtree(prefix, ignore_errors=True)
    configure_and_build(log, "release", "xpud_installed")
    log.must("cmake", "--install", "build/release", "--prefix", prefix)
    examples = next(prefix.glob("share/doc/*/examples"))
    consumers = ROOT / "build/consumer"
    shutil.rmtree(consumers, ignore_errors=True)
    for source, name in ((ROOT / "tests/package", "package"), (examples, "examples")):
        log.must("cmake", "-G", "Ninja", "-S", source, "-B", consumers / name, f"-DCMAKE_PREFIX_PATH={prefix}",
                 "-DCMAKE_CXX_COMPILER=clang++-22", "-DCMAKE_BUILD_TYPE=Release")
        log.must("cmake", "--build", consumers / name)
    (consumers / "make").mkdir()
    library = next(prefix.glob("lib/**/libxpud.so")).parent
    log.must("make", "-f", examples / "Makefile", "CXX=clang++-22", cwd=consumers / "make", env={"PKG_CONFIG_PATH": str(library / "pkgconfig")})
    with own_daemon() as env:
        installed = env | {"XPUD_DAEMON": "", "LD_LIBRARY_PATH": str(library)}  # the library finds the daemon that is installed beside it
        log.must(consumers / "package/package_user", env=installed)
        for folder in ("examples", "make"):
            log.must(consumers / folder / "xpud_pipeline", "4", "256", env=installed)


def python(log: Log) -> Tally:
    """The Python client: its ops compared with NumPy, arrays, other libraries, processes, MiniLM, the wheel."""
    configure_and_build(log, "release", "xpud_python", "xpud", "xpuctl", "ze_xpud", "xpud-connect", "xpud-gateway")
    with own_daemon() as env:
        return unittests(log, "sdk/python/tests", env | {"PYTHONPATH": str(RELEASE / "lib")}, together=2)


def package(log: Log) -> Tally:
    """Builds the packages and the wheel, and installs, uses and removes them in a bare Debian."""
    made = [line for kind in ((), ("--wheel",)) for line in log.must("tools/package", *kind).splitlines() if "installed" in line]
    print("    " + "\n    ".join(made), flush=True)
    return unittests(log, "tests/package", patterns=("debian_test.py", "wheel_test.py"))


def torch(log: Log) -> Tally:
    with own_daemon() as env:
        return unittests(log, "sdk/torch/tests", env, together=2)


def ecosystem(log: Log) -> Tally:
    """Programs of packages as they come from PyPI, on the CPU and on xpud. Prints which operators fell back, the most wanted first."""
    python = stage_environment.prepare(log, "ecosystem")
    report = ROOT / "build/ecosystem-fallbacks.jsonl"
    report.write_text("")
    with own_daemon() as env:
        tally = unittests(log, "tests/ecosystem", env | {"XPUD_ECOSYSTEM_REPORT": str(report)}, together=2, python=python)
    table = log.must(PYTHON, "tests/ecosystem/report.py", report)
    print("    " + table.strip().replace("\n", "\n    "), flush=True)
    return tally


# The C++ suites that every way to run a device runs. The others do not depend on it; they run so with --full.
CORE = ("compute", "devices", "executor", "faults", "host_memory", "host_memory_rules", "quota", "user_view")


def e2e(log: Log) -> Tally:
    """Real processes: C++ clients, then Python clients."""
    return ctest(log, "release", "-L", "e2e") + unittests(log, "tests/e2e", together=2)


def core(log: Log, env: dict[str, str], suites: tuple[str, ...] = CORE) -> Tally:
    return ctest(log, "release", "-L", "e2e", *(() if os.environ.get("XPUD_TEST_FULL") else ("-R", f"e2e_({'|'.join(suites)})_test")), env=env)


def engines(log: Log) -> Tally:
    """Cluster engines give out parts of a device: xpud-node-agent between a daemon and an engine."""
    python = stage_environment.prepare(log, "engines")
    stage_environment.add_helm(log, python)
    configure_and_build(log, "release", "xpud-node-agent", "xpud-slurm", "spank_xpud", "xpud", "xpuctl", "xpud_pipeline", "ze_xpud", "xpud_python")
    tally = unittests(log, "tests/engines", together=2, python=python)
    return tally + unittests(log, "tests/engines/ray", python=stage_environment.prepare(log, "engines/ray"))


def validation(log: Log) -> Tally:
    """The end-to-end tests that use devices, with the loader checking every parameter of every call."""
    env = {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}
    more = ("faults", "sharing") if os.environ.get("XPUD_TEST_FULL") else ()
    files = tuple(f"{name}_test.py" for name in ("attention", "executor", "sensors", *more))
    return core(log, env) + unittests(log, "tests/e2e", env, files, together=2)


def asynchronous(log: Log) -> Tally:
    """The end-to-end tests with the CPU device treated like a GPU: completion is reported by the device."""
    return core(log, {"XPUD_TEST_DAEMON_FLAGS": "--device cpu --asynchronous"})


def plain(log: Log) -> Tally:
    """The same and PyTorch's tests with a driver that has none of our extensions, as other vendors' drivers: without executor processes, which need
    them. It runs nothing during the append, and keeps no order but that of barriers."""
    env = {"XPUD_CPU_PLAIN": "1", "GTEST_FILTER": "-*InProcesses:Executor.*:*Spawner*"}
    tally = core(log, env)
    with own_daemon() as own:
        return tally + unittests(log, "sdk/torch/tests", own | env, ("test_device.py", "test_indices.py", "test_models.py"), together=2)


def intel(log: Log) -> Tally:
    """Intel's real driver without its hardware, beside ours and alone."""
    intel_driver.prepare(log)
    return unittests(log, "tests/intel")


def executor(log: Log) -> Tally:
    """The same, and the PyTorch package's tests, with the CPU device in an executor process, as a GPU is by default."""
    flags = "--device cpu --executor process"
    tally = core(log, {"XPUD_TEST_DAEMON_FLAGS": flags}, tuple(suite for suite in CORE if suite != "executor"))  # the suite has these flags anyway
    with tempfile.TemporaryDirectory(prefix="xpud-test-") as folder:
        with contextlib.closing(Daemon(RELEASE / "bin", pathlib.Path(folder, "log"), *flags.split())) as daemon:
            files = ("test_device.py", "test_indices.py", "test_inductor.py", "test_models.py", "test_pinned.py")
            return tally + unittests(log, "sdk/torch/tests", {"XPUD_ADDRESS": str(daemon.address)}, files, together=2)


def remote(log: Log) -> Tally:
    """Over a gateway: the end-to-end tests of computed results, the isolation catalogue (the slowest with --full), and PyTorch's tests. Features that
    only remote sessions have are tested in e2e."""
    over_gateway = {"XPUD_TEST_REMOTE": "1"}
    tally = ctest(log, "release", "-L", "e2e", "-R", "e2e_(compute|faults|quota)_test", env=over_gateway)
    configure_and_build(log, "release", "xpud_isolation_tests")
    catalogue = "isolation_" if os.environ.get("XPUD_TEST_FULL") else "isolation_(02|04|06|07|12|13|15|16|18|25)_"
    tally += ctest(log, "release", "-L", "isolation", "-R", catalogue, env=over_gateway)
    with tempfile.TemporaryDirectory(prefix="xpud-test-") as folder:
        with contextlib.closing(Daemon(RELEASE / "bin", pathlib.Path(folder, "log"), "--device", "cpu")) as daemon:
            with contextlib.closing(Gateway(RELEASE / "bin", daemon, pathlib.Path(folder))) as gateway:
                return tally + unittests(log, "sdk/torch/tests", gateway.environment, ("test_device.py", "test_inductor.py", "test_models.py"), together=2)


def network(log: Log) -> Tally:
    """Clients in another network namespace, with delays, losses and cut connections; the slowest with --full."""
    configure_and_build(log, "release", "delay_line", "xpud_python", "xpud", "xpuctl", "ze_xpud", "xpud-connect", "xpud-gateway")
    return unittests(log, "tests/network")


def inject(log: Log) -> Tally:
    """Level Zero's calls fail in turn: every 25th, with --full every one."""
    return ctest(log, "release", "-L", "inject")


def soak(log: Log) -> None:
    """Three quarters of a minute, with --full ten minutes; use `tools/soak --minutes 120` for two hours."""
    configure_and_build(log, "release", "xpud", "xpuctl", "ze_xpud", "stress_client")
    length = ("--minutes", "10") if os.environ.get("XPUD_TEST_FULL") else ("--minutes", "0.75", "--clients", "20")
    # With claims, whose end ends tickets: otherwise a rest waits for a minute. Their memory is beyond the device's.
    tenants = ("--claims", "4", "--daemon=--test-device-memory 512MiB --move-out 4GiB")
    output = log.must("tools/soak", *length, *tenants, timeout=1200)
    print("    " + "\n    ".join(output.strip().splitlines()[-6:]), flush=True)


def isolation(log: Log) -> Tally:
    """The isolation catalogue, with the release build, because it counts thousands of commands and kills, and measures time."""
    configure_and_build(log, "release", "xpud_isolation_tests")
    tally = ctest(log, "release", "-L", "isolation", "-V")
    figures = re.findall(r"\[ figures  \] (.*)", log.path.read_text(errors="replace"))
    print("".join(f"    {figure}\n" for figure in figures), end="", flush=True)
    return tally


def demo(log: Log) -> None:
    log.must("tools/demo", "--quick")


def bench(log: Log) -> None:
    log.must("tools/bench", "--smoke", "--json", "build/bench-smoke.json")
    rows = json.loads(pathlib.Path(ROOT, "build/bench-smoke.json").read_text())["rows"]
    if not rows:
        raise StageFailed("no benchmark reported a row")


STAGES = [
    Stage("setup", "packages, .venv, release build, torch_xpud", setup),
    Stage("format", "clang-format on every source", code_format, ("setup",)),
    Stage("lint", "include directions and habits; the tests of the lints and of set-up", lint),
    Stage("build", "the release build: all programs, tests and benchmarks; warnings are errors", build, ("setup",)),
    Stage("tidy", "clang-tidy on the sources that changed lately (with --full all), and on a planted fault", clang_tidy, ("build",)),
    Stage("unit", "unit tests; docs/operators.md lists the op table's ops", unit, ("build",)),
    Stage("asan", "wire, session and driver tests under ASan and UBSan, with planted faults", sanitizer("asan-ubsan"), ("setup",)),
    Stage("tsan", "ring and scheduler tests under TSan, with a planted race", sanitizer("tsan"), ("setup",)),
    Stage("fuzz", "libFuzzer for half a minute per target from a fixed start, and planted faults", fuzz, ("setup",)),
    Stage("links", "libxpud is small and needs neither LLVM nor Level Zero nor gRPC; tools/setup builds all that is installed", links, ("setup",)),
    Stage("install", "install rules; programs built with find_package(xpud) and with pkg-config", install, ("setup",)),
    Stage("python", "the Python client without torch, and its wheel", python, ("setup",)),
    Stage("package", "Debian packages and the wheel, in a bare Debian with systemd: installed, used, upgraded, purged", package, ("setup",), full=True),
    Stage("torch", "the PyTorch package against CPU", torch, ("setup",)),
    Stage("ecosystem", "transformers, accelerate, lightning and others from PyPI, on xpud against CPU", ecosystem, ("setup",)),
    Stage("e2e", "real processes: daemon, clients, faults", e2e, ("setup", "build")),
    Stage("engines", "Kubernetes (as a kubelet and an API server see it), real Slurm and real Ray give out parts of a device", engines, ("setup",)),
    Stage("validation", "those of e2e that use devices, under Level Zero's validation layer", validation, ("setup", "build")),
    Stage("asynchronous", "real processes, with the CPU device treated like a GPU", asynchronous, ("build",)),
    Stage("plain", "the same and PyTorch, with a driver that has none of our extensions", plain, ("setup", "build")),
    Stage("intel", "Intel's real driver, without its hardware", intel, ("setup", "build"), full=True),
    Stage("remote", "the same and PyTorch, through xpud-connect and xpud-gateway", remote, ("setup", "build")),
    Stage("executor", "the same and PyTorch, with the CPU device in an executor process", executor, ("setup", "build")),
    Stage("network", "clients behind a network with delays, losses and cut connections", network, ("setup",)),
    Stage("inject", "the Nth call of Level Zero fails: an error or correct results, and the next client is served", inject, ("build",)),
    Stage("soak", "clients connect, compute, leave and are killed; the daemon keeps nothing of them", soak, ("setup",), full=True),
    Stage("isolation", "hostile clients beside an innocent one", isolation, ("setup",)),
    Stage("demo", "the demo, small", demo, ("setup",), full=True),
    Stage("bench", "every benchmark once, small", bench, ("setup",), full=True),
]
