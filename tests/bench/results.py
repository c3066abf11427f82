"""Result files: measurements of `tools/bench` on one machine, one JSON document per run. README.md describes the fields."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Hashable, Iterable

import rows as benchmark_rows

SCHEMA = 1
FOLDER = pathlib.Path(__file__).resolve().parent / "results"


def gpus() -> list[str]:
    """Returns the names of this machine's NVIDIA GPUs."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def kind_of(cores: int, model: str, gpu: list[str]) -> str:
    """Returns the kind of a machine, 'h100', '2-h100' or 'epyc-2-cores'. Machines of one kind share a column."""
    if gpu:
        found = re.search(r"\b[A-Z]+\d+\w*\b", gpu[0])
        name = (found[0] if found else gpu[0].removeprefix("NVIDIA ")).lower().replace(" ", "-")
        return name if len(gpu) == 1 else f"{len(gpu)}-{name}"
    found = re.search(r"EPYC|Xeon|Ryzen|Core", model)
    return f"{(found[0] if found else platform.machine()).lower()}-{cores}-cores"


def machine() -> dict:
    """Describes this machine, without its name."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    cores, gpu = len(os.sched_getaffinity(0)), gpus()
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = None
    return {"kind": kind_of(cores, model, gpu), "cores": cores, "model": model, "gpu": ", ".join(gpu) or None, "linux": platform.release(), "torch": torch}


def version(root: pathlib.Path) -> str:
    """Returns the commit of a clone, with '-dirty' if files differ from it, or the version of a bundle."""
    bundled = root / "share/xpud/src/VERSION"
    if bundled.exists():
        return bundled.read_text().strip()
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True).stdout.strip() or "unknown"


def document(root: pathlib.Path, rows: list[dict], load: float, smoke: bool) -> dict:
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"schema": SCHEMA, "date": now.strftime("%Y-%m-%dT%H:%MZ"), "version": version(root), "machine": machine(), "load": round(load, 1),
            **({"smoke": True} if smoke else {}), "rows": rows}


def text_of(result: dict) -> str:
    """Returns the document as JSON, one line per row."""
    head = {name: value for name, value in result.items() if name != "rows"}
    lines = ",\n".join("  " + json.dumps(row) for row in result["rows"])
    return json.dumps(head, indent=1).removesuffix("\n}") + ',\n "rows": [\n' + lines + "\n ]\n}\n"


def read(path: pathlib.Path) -> dict:
    result = json.loads(path.read_text())
    if isinstance(result, list):  # written by --json before documents existed
        return {"rows": result}
    if result.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {result.get('schema')}; this program reads {SCHEMA}")
    return result


def free_path(result: dict, folder: pathlib.Path = FOLDER) -> pathlib.Path:
    """Returns DATE-KIND.json or, if that exists, DATE-KIND-2.json and so on."""
    stem = f"{result['date'][:10]}-{result['machine']['kind']}"
    number = 1
    while (path := folder / f"{stem}{f'-{number}' if number > 1 else ''}.json").exists():
        number += 1
    return path


def all_saved(folder: pathlib.Path = FOLDER) -> list[dict]:
    """Returns every saved document, the oldest first."""
    return sorted((read(path) for path in sorted(folder.glob("*.json"))), key=lambda result: result["date"])


def key_of(row: dict) -> tuple[str, str, str]:
    """Rows with the same key are runs of one measurement."""
    return row["benchmark"], row["name"], row["baseline"]


def grouped(rows: Iterable[dict], key: Callable[[dict], Hashable] = key_of) -> dict[Hashable, list[dict]]:
    groups: dict[Hashable, list[dict]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def median(runs: list[dict], field: str) -> float | None:
    """None if no run has the field."""
    values = [run[field] for run in runs if run.get(field) is not None]
    return statistics.median(values) if values else None


def is_met(target: str, runs: list[dict]) -> bool | None:
    """Whether the medians of a row's runs meet `target`. None if there is no target, or if the required value is unknown."""
    value, baseline, ratio = (median(runs, field) for field in ("value", "baseline_value", "ratio"))
    if target.startswith("ratio"):
        return None if ratio is None else benchmark_rows.is_met(target, ratio, 1.0)
    if value is None or (target.startswith("excess") and baseline is None):
        return None
    return benchmark_rows.is_met(target, value, baseline)
