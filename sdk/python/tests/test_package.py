"""The package as pip builds it: a wheel for every Python from 3.9 that contains what it needs, with type hints."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCE = ROOT / "sdk/python"


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="xpud-wheel-")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.folder = pathlib.Path(cls._folder.name)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", cls.folder, SOURCE], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.wheel, = cls.folder.glob("*.whl")
        subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--target", cls.folder / "site", cls.wheel], check=True, capture_output=True)

    def run_there(self, code: str) -> str:
        """Runs code in a Python that has the installed wheel and no other xpud."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(self.folder / "site")}
        done = subprocess.run([sys.executable, "-c", code], env=env, cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_wheel_serves_every_python_from_3_9(self):
        self.assertRegex(self.wheel.name, r"^xpud-[\d.]+-cp39-abi3-linux_x86_64\.whl$")
        names = zipfile.ZipFile(self.wheel).namelist()
        for name in ("xpud/_xpud.abi3.so", "xpud/py.typed", "xpud/__init__.pyi", "xpud/ops.pyi", "xpud/_xpud.pyi"):
            self.assertIn(name, names)
        self.assertLess(self.wheel.stat().st_size, 5_000_000)
        metadata = zipfile.ZipFile(self.wheel).read(next(n for n in names if n.endswith("METADATA")))
        self.assertIn(b"Requires-Python: >=3.9", metadata)
        self.assertIn(b"License-Expression: Apache-2.0", metadata)
        self.assertTrue(any(n.endswith("licenses/LICENSE") for n in names))

    def test_it_computes_and_needs_no_torch(self):
        out = self.run_there("import sys, xpud; print(xpud.__file__, xpud.__version__); print((xpud.arange(3) + 1).tolist(), 'torch' in sys.modules)")
        self.assertIn(str(self.folder), out)
        self.assertIn("[1, 2, 3] False", out)

    def test_abseil_comes_with_it(self):
        maps = self.run_there("import xpud; print(open('/proc/self/maps').read())")
        libraries = set(re.findall(r"\S*/libabsl_\S+", maps))
        self.assertTrue(libraries)
        self.assertEqual({path for path in libraries if not path.startswith(str(self.folder))}, set())

    def test_the_module_needs_the_stable_abi_and_common_libraries_only(self):
        module = self.folder / "site/xpud/_xpud.abi3.so"
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(["readelf", "-d", module], check=True, capture_output=True, text=True).stdout)
        self.assertEqual([name for name in needed if not re.match(r"lib(absl_\w+|stdc\+\+|m|gcc_s|c)\.so|ld-linux", name)], [])
        symbols = subprocess.run(["nm", "-D", module], check=True, capture_output=True, text=True).stdout
        self.assertEqual(re.findall(r" T (\S+)", symbols), ["PyInit__xpud"])
        internal = {name for name in re.findall(r" U (_Py\S+)", symbols) if not name.endswith("_SizeT")}  # those of PY_SSIZE_T_CLEAN are stable
        self.assertEqual(internal - {"_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct", "_Py_EllipsisObject", "_Py_Dealloc"}, set())


class Source(unittest.TestCase):
    def test_it_is_python_3_9(self):
        files = [*SOURCE.glob("xpud/*.py"), SOURCE / "setup.py", SOURCE / "stubs.py"]
        self.assertGreater(len(files), 10)
        for path in files:
            ast.parse(path.read_text(), str(path), feature_version=(3, 9))

    def test_hints_name_what_the_package_has(self):
        import xpud
        folder = pathlib.Path(xpud.__file__).parent
        for module, stub in ((xpud, "__init__.pyi"), (xpud.ops, "ops.pyi")):
            named = set()
            for node in ast.parse((folder / stub).read_text()).body:
                named |= {alias.asname or alias.name for alias in getattr(node, "names", ())} if isinstance(node, ast.ImportFrom) else set()
                named |= {node.name} if isinstance(node, ast.FunctionDef) else {node.target.id} if isinstance(node, ast.AnnAssign) else set()
            public = {name for name in module.__all__ if name.isidentifier()}
            self.assertEqual(public - named, set(), stub)
            self.assertEqual({name for name in named if not hasattr(module, name) and not hasattr(xpud, name)}, set(), stub)

    def test_what_is_public_says_what_it_does(self):
        import xpud
        self.assertEqual([name for name in xpud.__all__ if callable(getattr(xpud, name)) and not getattr(xpud, name).__doc__], [])
        self.assertEqual([name for name in dir(xpud.Array) if not name.startswith("_") and not getattr(xpud.Array, name).__doc__], [])

    def test_help_shows_signatures_and_no_internals(self):
        import inspect
        import pydoc
        import xpud
        self.assertEqual(str(inspect.signature(xpud.add)), "(a, b, c=1, /, *, out=None)")
        self.assertEqual(str(inspect.signature(xpud.ops.cumsum)), "(self, /, *, dim, dtype=None)")
        for module in (xpud, xpud.ops):
            text = pydoc.render_doc(module, renderer=pydoc.plaintext)
            functions = text[text.index("\nFUNCTIONS\n"):text.index("\nDATA\n")]
            shown = set(re.findall(r"^    (\w+)(?: = \w+)?\(", functions, re.M))
            wanted = {name for name in module.__all__ if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)}
            self.assertEqual(wanted - shown, set())
            for internal in ("functools.partial", "<xpud op", "<function", "{'number'"):
                self.assertNotIn(internal, text)
        self.assertIn("sort(array", pydoc.render_doc(xpud.sort, renderer=pydoc.plaintext))

    def test_versions_agree(self):
        import xpud
        declared = re.search(r'^version = "(.*)"', (SOURCE / "pyproject.toml").read_text(), re.M).group(1)
        self.assertEqual(xpud.__version__, declared)


if __name__ == "__main__":
    unittest.main()
