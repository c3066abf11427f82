"""Adapting other packages: the import hook, and what the adaptations share. tests/ecosystem has the packages themselves."""

import importlib
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings

import torch  # noqa: F401  loads torch_xpud
from torch_xpud import imports, packages
from torch_xpud.packages import adapt


class HookTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)

    def write(self, name, text):
        """Writes a module that no other test has; returns its name."""
        name = f"{name}_{id(self)}"
        (self.folder / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        self.addCleanup(sys.modules.pop, name, None)
        return name

    def test_the_function_sees_the_executed_module_before_its_importer_does(self):
        name = self.write("later", "value = 1")
        imports.when_imported(name, lambda module: setattr(module, "value", module.value + 1))
        user = self.write("user", f"from {name} import value")
        self.assertEqual(importlib.import_module(user).value, 2)
        self.assertEqual(type(sys.modules[name].__loader__).__name__, "SourceFileLoader")

    def test_a_module_that_was_imported_before(self):
        name = self.write("before", "value = 1")
        importlib.import_module(name)
        imports.when_imported(name, lambda module: setattr(module, "value", 2))
        self.assertEqual(sys.modules[name].value, 2)

    def test_a_module_that_imports_torch_itself(self):
        name = self.write("importing", """
            from torch_xpud import imports
            imports.when_imported(__name__, lambda module: setattr(module, "seen", module.value))
            value = 1
            """)
        self.assertEqual(importlib.import_module(name).seen, 1)

    def test_a_module_that_fails_is_not_adapted(self):
        name = self.write("failing", "from torch_xpud import imports\nimports.when_imported(__name__, print)\nraise ValueError('as planned')")
        with self.assertRaisesRegex(ValueError, "as planned"):
            importlib.import_module(name)

    def test_a_place_that_is_gone_is_one_warning(self):
        name = self.write("newer", "__version__ = '9.9'")
        imports.when_imported(name, lambda module: adapt.replace(module, "absent", lambda original: original))
        with self.assertWarnsRegex(UserWarning, f"could not adapt {name} .version 9.9. to xpud: AttributeError.*absent"):
            importlib.import_module(name)

    def test_no_package_is_imported_for_being_adapted(self):
        names = sorted({module.partition(".")[0] for module, _ in packages.WORKAROUNDS})
        program = f"import sys, torch; print([name for name in {names!r} if name in sys.modules])"
        self.assertEqual(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip(), "[]")

    def test_every_row_names_a_function(self):
        for module, function in packages.WORKAROUNDS:
            file, _, name = function.rpartition(".")
            self.assertTrue(callable(getattr(importlib.import_module(f"torch_xpud.packages.{file}"), name)), (module, function))


class Owner:
    @property
    def attribute(self):
        return "property"

    @staticmethod
    def static():
        return "static"

    def method(self):
        return "method"


class AdaptTest(unittest.TestCase):
    def test_replace_keeps_the_kind(self):
        for name in ("attribute", "static", "method"):
            adapt.replace(Owner, name, lambda original: lambda *arguments: original(*arguments).upper())
        self.assertEqual([Owner().attribute, Owner.static(), Owner().static(), Owner().method()], ["PROPERTY", "STATIC", "STATIC", "METHOD"])

    def test_widen_adds_to_lists_of_device_types_only(self):
        def choose(device):
            def inner():
                return device in {"cuda", "mps"}
            return device in ("cuda", "xpu"), inner(), device in ("cpu", "disk"), device in ("cpu", "mps")

        self.assertEqual(choose("xpud"), (False, False, False, False))
        self.assertEqual(adapt.widen(choose), 3)
        self.assertEqual(choose("xpud"), (True, True, False, True))
        self.assertEqual(choose("cpu"), (False, False, True, True))
        with self.assertRaisesRegex(LookupError, "no list of device types"):
            adapt.must_widen(choose)


class TorchvisionTest(unittest.TestCase):
    def test_operators_that_torchvision_has_loaded_get_kernels_for_xpud_only(self):
        program = textwrap.dedent("""
            import torch, types
            from torch_xpud.packages import torchvision
            library = torch.library.Library("torchvision", "DEF")
            for declaration in torchvision.DECLARATIONS:
                library.define(declaration)
            library.impl("nms", lambda boxes, scores, threshold: torch.tensor([7]), "CPU")
            torchvision.extension(types.SimpleNamespace(_has_ops=lambda: True))
            boxes, scores = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]]), torch.tensor([1.0, 2, 0])
            print(torch.ops.torchvision.nms(boxes, scores, 0.5).tolist(), torch.ops.torchvision.nms(boxes.xpud(), scores.xpud(), 0.5).tolist())
            print(torch.xpud.fallback_counts())
            """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[7] [1, 2]\n{}\n")


class HintTest(unittest.TestCase):
    def run_program(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(text)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
        return done.stdout, done.stderr.count("python -m torch_xpud")

    def test_one_hint_for_a_program_that_would_use_the_cpu(self):
        asking = "import torch\nfor _ in range(2):\n    print(torch.cuda.is_available(), torch.xpu.is_available())\n"
        out, hints = self.run_program(asking)
        self.assertEqual((out, hints), ("False False\n" * 2, 1))

    def test_none_for_a_program_that_uses_xpud(self):
        _, hints = self.run_program("import torch\ntorch.ones(1, device='xpud')\ntorch.cuda.is_available()\n")
        self.assertEqual(hints, 0)

    def test_none_for_packages(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            import torch.utils.collect_env
            torch.utils.collect_env.get_env_info()


if __name__ == "__main__":
    unittest.main()
