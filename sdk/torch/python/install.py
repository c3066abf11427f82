"""Installs the package torch_xpud into the site-packages of the Python that runs this, without pip or a network:

    .venv/bin/python sdk/torch/python/install.py build/release

This creates site-packages/torch_xpud.pth, which contains the path of the build's lib folder, and a dist-info with the entry point through
which plain `import torch` loads the package. Run it again after moving the build; `--uninstall` removes both.
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
    parser.add_argument("--library", type=pathlib.Path, help="the folder that contains torch_xpud (default: BUILD/lib)")
    parser.add_argument("--target", type=pathlib.Path, help="install here (a folder for PYTHONPATH) instead of into site-packages")
    parser.add_argument("--uninstall", action="store_true")
    options = parser.parse_args()
    site = options.target or pathlib.Path(sysconfig.get_paths()["purelib"])
    info = site / f"torch_xpud-{VERSION}.dist-info"
    pth = site / "torch_xpud.pth"
    shutil.rmtree(info, ignore_errors=True)
    pth.unlink(missing_ok=True)
    if options.uninstall:
        return
    if options.build is None and options.library is None:
        parser.error("no build folder given: pass BUILD or --library")
    library = (options.library or options.build / "lib").resolve()
    if not list((library / "torch_xpud").glob("_C*.so")):
        parser.error(f"{library}/torch_xpud has no extension module: build the target torch_xpud_C first")
    info.mkdir(parents=True)
    if options.target is None:
        pth.write_text(f"{library}\n")
    else:  # Python ignores .pth files in folders of PYTHONPATH
        link = site / "torch_xpud"
        link.unlink(missing_ok=True)
        link.symlink_to(library / "torch_xpud")
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info / "INSTALLER").write_text("xpud\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "entry_points.txt", "INSTALLER", "RECORD"))
                                 + f"{pth.name},,\n")
    print(f"torch_xpud: {library} for {site}")


if __name__ == "__main__":
    main()
