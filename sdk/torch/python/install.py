"""Installs the package torch_xpud into the site-packages of the Python that runs this, without pip or a network:

    .venv/bin/python sdk/torch/python/install.py build/release

makes site-packages/torch_xpud.pth, which names the build's lib folder, and a dist-info with the entry point by which plain
`import torch` loads the package. Run again after moving the build; `--uninstall` removes both.
"""

import argparse
import pathlib
import shutil
import sysconfig

VERSION = "0.1.0"
ENTRY_POINTS = "[torch.backends]\ntorch_xpud = torch_xpud._entry:load\n"
METADATA = f"Metadata-Version: 2.1\nName: torch-xpud\nVersion: {VERSION}\nSummary: PyTorch on xpud\nRequires-Dist: torch\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, help="build folder")
    parser.add_argument("--uninstall", action="store_true")
    options = parser.parse_args()
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    info = site / f"torch_xpud-{VERSION}.dist-info"
    pth = site / "torch_xpud.pth"
    shutil.rmtree(info, ignore_errors=True)
    pth.unlink(missing_ok=True)
    if options.uninstall:
        return
    if options.build is None:
        parser.error("which build folder?")
    library = options.build.resolve() / "lib"
    if not list((library / "torch_xpud").glob("_C*.so")):
        parser.error(f"{library}/torch_xpud has no extension module: build the target torch_xpud_C first")
    pth.write_text(f"{library}\n")
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info / "INSTALLER").write_text("xpud\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "entry_points.txt", "INSTALLER", "RECORD"))
                                 + f"{pth.name},,\n")
    print(f"torch_xpud: {library} for {site}")


if __name__ == "__main__":
    main()
