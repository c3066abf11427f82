"""libxpud needs few libraries and little space."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

LIBRARY = pathlib.Path(os.environ.get("XPUD_LIBRARY") or pathlib.Path(__file__).resolve().parents[2] / "build/release/lib/libxpud.so")
LIMIT = 5_000_000  # bytes, stripped
# Allowed: the C++ runtime, and Abseil, whose types the public headers use. Not allowed: LLVM, Level Zero, gRPC, and libraries that need them.
ALLOWED = re.compile(r"libabsl_\w+\.so\.\d+|lib(stdc\+\+|m|gcc_s|c|atomic)\.so\.\d+|ld-linux[\w-]+\.so\.\d+")


def readelf(*arguments) -> str:
    return subprocess.run(["readelf", *arguments, LIBRARY], check=True, capture_output=True, text=True).stdout


class Library(unittest.TestCase):
    def test_it_needs_the_cxx_runtime_and_abseil_only(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d"))
        self.assertIn("libc.so.6", needed)
        self.assertEqual([name for name in needed if not ALLOWED.fullmatch(name)], [])

    def test_it_wants_no_symbol_of_llvm_level_zero_or_grpc(self):
        undefined = subprocess.run(["nm", "-D", "-C", "-u", LIBRARY], check=True, capture_output=True, text=True).stdout
        self.assertIn("absl::", undefined)
        self.assertEqual(re.findall(r"^\s+U ((?:ze[A-Z]|zes[A-Z]|zet[A-Z]|LLVM|llvm::|grpc)\S*)", undefined, re.M), [])

    def test_it_is_small(self):
        with tempfile.TemporaryDirectory() as folder:
            stripped = pathlib.Path(folder, "libxpud.so")
            subprocess.run(["strip", "-o", stripped, LIBRARY], check=True)
            self.assertLess(stripped.stat().st_size, LIMIT)

    def test_it_exports_the_public_api_only(self):
        """Returns the exported symbols, without weak ones, which C++ emits for templates."""
        defined = subprocess.run(["nm", "-D", "-C", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
        strong = re.findall(r"^\w+ [TDBR] (.*)$", defined, re.M)
        self.assertTrue(any(name.startswith("xpud::Session::Connect(") for name in strong))
        self.assertEqual([name for name in strong if not name.startswith("xpud::")], [])


if __name__ == "__main__":
    unittest.main()
