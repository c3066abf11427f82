#!/usr/bin/env python3
"""Checks the arrows of DESIGN.md: which folders may include which.

Usage: include_lint.py [ROOT]. Prints one line per violation, `file:line: reason`, and exits with 1 if there are any.
Folders that include each other, directly or through others, are violations too. A rule names a folder, the path prefixes of ours that its files may
include, and the restricted libraries that they may use. Libraries that are not restricted, such as the standard library, may be used anywhere.
"""

import dataclasses
import pathlib
import re
import sys

SOURCES = {".h", ".c", ".cc", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

# Our folders: an include that starts with one of these is looked up in the rules.
OURS = ("proto/", "sdk/", "xpud/", "kernels/", "drivers/", "daemon/", "deploy/", "tools/", "tests/")
# Restricted libraries: include prefix -> name.
FENCED = {
    "level_zero/": "Level Zero", "proto/base/ze_ext.h": "Level Zero", "llvm/": "LLVM", "llvm-c/": "LLVM",
    "oneapi/dnnl": "oneDNN", "dnnl": "oneDNN", "grpcpp/": "gRPC", "grpc/": "gRPC", "proto/control/": "gRPC", "proto/remote/remote.": "gRPC",
    "torch/": "PyTorch", "ATen/": "PyTorch", "c10/": "PyTorch", "Python.h": "Python", "cuda.h": "CUDA",
    "openssl/": "OpenSSL", "spdlog/": "spdlog", "yaml-cpp/": "yaml-cpp", "absl/synchronization/": "absl::Mutex",
    "curl/": "libcurl", "nlohmann/": "nlohmann/json", "slurm/": "Slurm", "deploy/agent/kubelet/": "gRPC", "deploy/agent/grants/grants.pb.h": "gRPC", "deploy/agent/grants/grants.grpc.pb.h": "gRPC",
    "deploy/agent/slurm/slurm.pb.h": "gRPC", "deploy/agent/slurm/slurm.grpc.pb.h": "gRPC",
}


@dataclasses.dataclass(frozen=True)
class Rule:
    """What files below `folder` may include. The longest matching folder applies."""
    folder: str
    ours: tuple[str, ...]
    libraries: tuple[str, ...] = ()


# What each room of the shim may include besides rooms.
SHIM = ("xpud/", "proto/base/", "proto/ops/")
# xpud_config_values: what other programs' configurations have in common with the daemon's.
VALUES = ("daemon/config/byte_size.h", "daemon/config/nearest_word.h", "daemon/config/trusted_file.h", "daemon/config/user.h")

# What clients of the agent's local socket need of it.
AGENT = ("deploy/agent/grants/grants.pb.h", "deploy/agent/grants/grants.grpc.pb.h", "deploy/agent/grants/local_socket.h")

RULES = (
    Rule("proto/", ("proto/",)),
    Rule("proto/base/", ("proto/base/",), ("Level Zero",)),  # ze_ext.h
    Rule("proto/ops/", ("proto/base/", "proto/ops/")),
    Rule("proto/loops/", ("proto/base/", "proto/ops/", "proto/loops/")),
    Rule("proto/control/", ("proto/",), ("gRPC",)),
    Rule("proto/remote/", ("proto/",), ("gRPC",)),
    Rule("sdk/", ("sdk/client/", "sdk/include/", "xpud/", "proto/base/", "proto/ops/", "proto/wire/", "proto/transport/")),
    Rule("sdk/examples/", ("xpud/",)),
    Rule("sdk/remote/", ("sdk/client/", "sdk/remote/", "xpud/", "proto/"), ("gRPC", "spdlog")),  # programs; libxpud has none of it
    Rule("sdk/control/", ("sdk/control/", "sdk/client/", "proto/remote/credentials.h", "proto/base/", "proto/control/"), ("gRPC",)),
    Rule("sdk/python/", ("sdk/python/", "xpud/", "proto/base/", "proto/ops/"), ("Python",)),
    Rule("sdk/torch/", ("sdk/client/", "sdk/torch/", "xpud/", "proto/base/", "proto/ops/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/runtime/", (*SHIM, "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/call/", (*SHIM, "sdk/torch/csrc/call/", "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/engines/", (*SHIM, "sdk/torch/csrc/engines/", "sdk/torch/csrc/call/", "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/fallback/", (*SHIM, "sdk/torch/csrc/fallback/", "sdk/torch/csrc/engines/", "sdk/torch/csrc/call/", "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/table/", (*SHIM, "sdk/torch/csrc/table/", "sdk/torch/csrc/fallback/", "sdk/torch/csrc/engines/", "sdk/torch/csrc/call/", "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("sdk/torch/csrc/ops/", (*SHIM, "sdk/torch/csrc/ops/", "sdk/torch/csrc/fallback/", "sdk/torch/csrc/engines/", "sdk/torch/csrc/call/", "sdk/torch/csrc/runtime/"), ("PyTorch",)),
    Rule("kernels/", ("kernels/", "proto/base/", "proto/ops/"), ("LLVM",)),
    Rule("kernels/api/", ("kernels/api/", "proto/base/", "proto/ops/")),
    Rule("kernels/compiler/", ("kernels/api/", "kernels/compiler/", "proto/base/", "proto/ops/"), ("LLVM",)),
    Rule("kernels/families/", ("kernels/api/", "kernels/compiler/", "kernels/families/", "proto/base/", "proto/ops/"), ("LLVM",)),
    Rule("kernels/loops/", ("kernels/api/", "kernels/compiler/", "kernels/families/", "kernels/loops/", "proto/base/", "proto/loops/", "proto/ops/"), ("LLVM",)),
    Rule("kernels/library/", ("kernels/api/", "kernels/library/", "proto/base/", "proto/ops/"), ("oneDNN", "Level Zero")),  # the HOST module ABI
    Rule("kernels/library/testing/", ("kernels/", "proto/base/", "proto/ops/"), ("Level Zero",)),
    Rule("kernels/testing/", ("kernels/", "proto/base/", "proto/loops/", "proto/ops/"), ("LLVM", "Level Zero")),  # runs kernels like a device
    Rule("drivers/frontend/", ("drivers/frontend/", "proto/base/"), ("Level Zero",)),
    Rule("drivers/cpu/", ("drivers/frontend/", "drivers/cpu/", "proto/base/"), ("Level Zero",)),
    Rule("drivers/cuda/", ("drivers/frontend/", "drivers/cuda/", "proto/base/"), ("Level Zero",)),
    Rule("drivers/", ("drivers/", "proto/base/"), ("Level Zero",)),  # the library's own wiring: which drivers there are
    Rule("daemon/", ("daemon/", "kernels/", "proto/"), ("spdlog",)),
    Rule("daemon/config/", ("daemon/", "proto/base/"), ("yaml-cpp",)),
    Rule("daemon/executor/", ("daemon/executor/", "daemon/tenant/time_grant.h", "kernels/", "proto/"), ("spdlog",)),
    Rule("daemon/executor/process/", ("daemon/executor/", "daemon/tenant/time_grant.h", "kernels/", "proto/"), ("spdlog", "Level Zero")),  # where ze_ext.h says memory may lie
    Rule("daemon/executor/api/", ("daemon/executor/api/", "daemon/tenant/time_grant.h", "kernels/api/", "proto/")),
    Rule("daemon/executor/level_zero/", ("daemon/executor/api/", "daemon/executor/level_zero/", "kernels/api/", "kernels/library/host_modules.h", "proto/"),
         ("spdlog", "Level Zero")),
    Rule("daemon/memory/", ("daemon/executor/api/", "daemon/memory/", "daemon/tenant/", "proto/")),
    Rule("daemon/handles/", ("daemon/executor/api/", "daemon/handles/", "daemon/memory/", "daemon/tenant/", "proto/")),
    Rule("daemon/records/", ("daemon/executor/api/work_time.h", "daemon/memory/usage.h", "daemon/tenant/", "daemon/records/", "kernels/api/", "proto/base/", "proto/ops/", "proto/wire/")),
    Rule("daemon/stream/", ("daemon/executor/api/", "daemon/handles/", "daemon/memory/", "daemon/stream/", "daemon/tenant/", "daemon/records/", "kernels/api/", "kernels/dispatch/", "proto/")),
    Rule("daemon/scheduler/", ("daemon/scheduler/", "daemon/stream/device_time.h", "daemon/tenant/", "proto/base/")),
    Rule("daemon/gateway/", ("daemon/gateway/", "daemon/telemetry/", "sdk/client/", "xpud/", "proto/"), ("gRPC", "spdlog", "OpenSSL")),  # a client of the daemon
    Rule("daemon/telemetry/", ("daemon/", "proto/"), ("spdlog", "gRPC")),  # metrics are read from the control plane's messages
    Rule("daemon/service/", ("daemon/", "proto/"), ("spdlog", "gRPC")),
    # A client of the control plane. Each engine's folder uses the core, and none another's.
    Rule("deploy/agent/", ("deploy/agent/", *VALUES, "daemon/telemetry/", "sdk/control/", "proto/"), ("gRPC", "spdlog", "yaml-cpp")),
    Rule("deploy/agent/core/", ("deploy/agent/core/", "sdk/control/", "proto/"), ("gRPC", "spdlog")),
    Rule("deploy/agent/grants/", ("deploy/agent/core/", "deploy/agent/grants/", *VALUES, "proto/"), ("gRPC", "spdlog")),
    Rule("deploy/agent/kubernetes/", ("deploy/agent/core/", "deploy/agent/kubernetes/", "deploy/agent/kubelet/", "proto/"), ("gRPC", "spdlog", "libcurl", "nlohmann/json")),
    Rule("deploy/agent/slurm/", ("deploy/agent/core/", "deploy/agent/grants/", "deploy/agent/slurm/", "daemon/config/byte_size.h", "sdk/control/", "proto/"), ("gRPC", "spdlog")),
    # Programs that Slurm runs, and its plugin.
    Rule("deploy/slurm/", ("deploy/agent/core/files.h", "deploy/agent/grants/local_socket.h", "deploy/agent/slurm/", "proto/"), ("gRPC", "Slurm")),
    Rule("tools/", ("sdk/client/", "sdk/control/", "xpud/", "proto/", "tools/", "daemon/config/", *AGENT), ("gRPC",)),
    Rule("tests/fuzz/", ("proto/", "sdk/client/", "kernels/", "drivers/", "daemon/", "deploy/agent/", "tools/xpuctl/", "tests/fuzz/"), ("gRPC", "spdlog")),
    Rule("tests/engines/", ("deploy/agent/", "proto/", "sdk/", "xpud/", "tests/"), ("gRPC",)),
    Rule("tests/inject/", ("daemon/executor/", "proto/", "sdk/", "xpud/", "tests/"), ("Level Zero", "gRPC")),  # also a device without a daemon
    Rule("tests/", ("proto/", "sdk/", "xpud/", "tests/"), ("Level Zero", "gRPC")),
)

# Libraries that tests beside the code may also use.
TEST_FOLDERS = {"kernels/": ("kernels/",)}
TEST_LIBRARIES = {"kernels/": ("Level Zero", "LLVM")}


def rule_of(path: str) -> Rule | None:
    matching = [rule for rule in RULES if path.startswith(rule.folder)]
    return max(matching, key=lambda rule: len(rule.folder), default=None)


def fenced_library(include: str) -> str | None:
    return next((name for prefix, name in FENCED.items() if include.startswith(prefix)), None)


def complaint(path: str, include: str) -> str | None:
    """Returns why the file at `path` may not include `include`, or None if it may."""
    rule = rule_of(path)
    if rule is None:
        return None
    ours, libraries = rule.ours, rule.libraries
    if is_test(path):
        top = path.split("/")[0] + "/"
        ours, libraries = ours + TEST_FOLDERS.get(top, ()), libraries + TEST_LIBRARIES.get(top, ())
    if include.startswith(OURS) and not include.startswith(ours):
        return f"{rule.folder} may not include {include}: allowed are {', '.join(ours)}"
    library = fenced_library(include)
    if library and library not in libraries:
        return f"{rule.folder} may not use {library} ({include})"
    return None


def is_test(path: str) -> bool:
    return path.endswith(("_test.cc", "_benchmark.cc"))


def includes(root: pathlib.Path) -> list[tuple[str, int, str]]:
    """Yields every #include below `root` in a folder with rules: (path, line, included path)."""
    found = []
    for folder in sorted({rule.folder.split("/")[0] for rule in RULES}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if match := INCLUDE.match(line):
                    found.append((file.relative_to(root).as_posix(), number, match.group(1)))
    return found


def cycles(found: list[tuple[str, int, str]]) -> list[str]:
    """Returns a line for each include that is part of a cycle of folders. Tests may include anything, so they do not count."""
    arrows: dict[str, dict[str, tuple[str, int]]] = {}
    for path, number, include in found:
        source, target = path.rpartition("/")[0], include.rpartition("/")[0]
        if include.startswith(OURS) and source != target and not is_test(path):
            arrows.setdefault(source, {}).setdefault(target, (path, number))

    def reachable(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for target in arrows.get(todo.pop(), {}):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    below = {folder: reachable(folder) for folder in arrows}
    return [f"{path}:{number}: {source} and {target} include each other, directly or through others"
            for source, targets in sorted(arrows.items()) for target, (path, number) in sorted(targets.items())
            if source in below.get(target, ())]


def violations(root: pathlib.Path) -> list[str]:
    found = includes(root)
    broken = [f"{path}:{number}: {reason}" for path, number, include in found if (reason := complaint(path, include))]
    return broken + cycles(found)


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = violations(root)
    print("\n".join(found) if found else "include directions: as DESIGN.md draws them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
