"""The include lint reports violations, and only those: each case plants one include in an otherwise empty tree."""

import pathlib
import tempfile
import unittest

import include_lint


def planted(path: str, include: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, path)
        file.parent.mkdir(parents=True)
        file.write_text(f"// a file\n#include {include}\n")
        return include_lint.violations(pathlib.Path(folder))


class IncludeLint(unittest.TestCase):
    def assert_refused(self, path: str, include: str):
        found = planted(path, include)
        self.assertEqual(len(found), 1, f"{path} including {include} went unnoticed")
        self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])

    def assert_allowed(self, path: str, include: str):
        self.assertEqual(planted(path, include), [])

    def test_sdk_and_daemon_do_not_know_each_other(self):
        self.assert_refused("sdk/client/core.cc", '"daemon/session/session.h"')
        self.assert_refused("daemon/session/session.cc", '"sdk/client/core.h"')
        self.assert_refused("daemon/session/session.cc", '"xpud/xpud.h"')

    def test_drivers_and_kernels_do_not_know_each_other(self):
        self.assert_refused("drivers/cpu/device.cc", '"kernels/dispatch/kernel_library.h"')
        self.assert_refused("kernels/compiler/ir.cc", '"drivers/cpu/device.h"')

    def test_a_driver_does_not_know_another(self):
        self.assert_refused("drivers/cpu/device.cc", '"drivers/cuda/device.h"')
        self.assert_refused("drivers/frontend/tables.cc", '"drivers/cpu/device.h"')

    def test_proto_knows_nothing_above_it(self):
        for include in ('"daemon/main.h"', '"sdk/client/core.h"', '"kernels/dispatch/kernel_library.h"', '"xpud/xpud.h"'):
            self.assert_refused("proto/wire/decode.cc", include)

    def test_only_the_executor_touches_level_zero_in_the_daemon(self):
        self.assert_refused("daemon/memory/pool.cc", "<level_zero/ze_api.h>")
        self.assert_refused("daemon/memory/pool.cc", '"proto/base/ze_ext.h"')
        self.assert_allowed("daemon/executor/level_zero/context.cc", "<level_zero/ze_api.h>")

        self.assert_refused("daemon/executor/api/device.h", "<level_zero/ze_api.h>")

    def test_kernels_have_floors(self):
        self.assert_refused("kernels/api/launch.h", '"kernels/compiler/emitter.h"')
        self.assert_refused("kernels/compiler/emitter.h", '"kernels/families/layout.h"')
        self.assert_refused("kernels/families/map.cc", '"kernels/library/planners.h"')
        self.assert_allowed("kernels/families/map_test.cc", '"kernels/testing/device.h"')

    def test_folders_that_include_each_other_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, include in (("daemon/a/a.h", "daemon/b/b.h"), ("daemon/b/b.h", "daemon/c/c.h"), ("daemon/c/c.h", "proto/base/fd.h")):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(f'#include "{include}"\n')
            self.assertEqual(include_lint.violations(root), [])
            (root / "daemon/c/c_test.cc").write_text('#include "daemon/a/a.h"\n')  # tests may
            self.assertEqual(include_lint.violations(root), [])
            (root / "daemon/c/c.cc").write_text('#include "daemon/a/a.h"\n')
            found = include_lint.violations(root)
            self.assertEqual([line.split(": ")[0] for line in found], ["daemon/a/a.h:1", "daemon/b/b.h:1", "daemon/c/c.cc:1"])

    def test_the_sdk_uses_neither_llvm_nor_level_zero(self):
        self.assert_refused("sdk/client/core.cc", '"llvm/IR/Module.h"')
        self.assert_refused("sdk/client/core.cc", "<level_zero/ze_api.h>")

    def test_absl_mutex_is_refused_everywhere(self):
        self.assert_refused("daemon/session/session.cc", '"absl/synchronization/mutex.h"')

    def test_rooms_of_the_shim_include_only_rooms_below(self):
        self.assert_refused("sdk/torch/csrc/runtime/errors.cc", '"sdk/torch/csrc/engines/device_check.h"')
        self.assert_refused("sdk/torch/csrc/call/operand.cc", '"sdk/torch/csrc/engines/map.h"')
        self.assert_refused("sdk/torch/csrc/engines/copy.cc", '"sdk/torch/csrc/fallback/fallback.h"')
        self.assert_allowed("sdk/torch/csrc/ops/copy.cc", '"sdk/torch/csrc/fallback/fallback.h"')

    def test_what_the_arrows_allow_passes(self):
        self.assert_allowed("daemon/session/session.cc", '"proto/wire/decode.h"')
        self.assert_allowed("kernels/compiler/ir.cc", '"llvm/IR/Module.h"')
        self.assert_allowed("sdk/torch/csrc/guard.cc", "<ATen/ATen.h>")
        self.assert_allowed("tools/xpuctl/ps.cc", '"proto/control/xpud.grpc.pb.h"')


if __name__ == "__main__":
    unittest.main()
