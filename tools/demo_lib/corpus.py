"""The demo's texts: docstrings of the Python standard library, read from its sources without importing them."""

import ast
import builtins
import hashlib
import inspect
import json
import pathlib
import random
import sys
import sysconfig

# Not API that anyone would search for.
SKIPPED = {"test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "site-packages", "dist-packages", "__pycache__", "antigravity",
           "this", "pydoc_data", "tkinter", "turtle", "distutils"}
MIN_CHARACTERS = 40
MAX_CHARACTERS = 600


def _clean(text: str | None) -> str:
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    joined = " ".join(" ".join(paragraphs[:2]).split())
    return joined[:MAX_CHARACTERS]


def _public(name: str) -> bool:
    return not name.startswith("_")


def _walk(node: ast.AST, prefix: str):
    for child in getattr(node, "body", []):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and _public(child.name):
            yield f"{prefix}.{child.name}", ast.get_docstring(child)
            if isinstance(child, ast.ClassDef):
                yield from _walk(child, f"{prefix}.{child.name}")


def _from_sources():
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED & set(parts) or not all(_public(part) or part == "__init__" for part in parts) or parts[0].startswith("config-"):
            continue
        module = ".".join(part for part in parts if part != "__init__")
        try:
            yield from _walk(ast.parse(path.read_text(encoding="utf-8")), module)
        except (SyntaxError, UnicodeDecodeError):
            continue  # a few files are invalid on purpose


def _from_builtins():
    for owner_name in ("builtins", "math", "itertools", "time", "zlib", "str", "list", "dict", "set", "bytes", "int", "float"):
        owner = getattr(builtins, owner_name, None) or __import__(owner_name)
        for name in sorted(vars(owner)):
            if _public(name):
                yield f"{owner_name}.{name}".removeprefix("builtins."), getattr(getattr(owner, name), "__doc__", None)


def all_docstrings() -> list[dict]:
    """Returns every docstring once, sorted by name: [{"name": ..., "text": ...}]."""
    seen, entries = set(), []
    for name, doc in sorted({**dict(_from_sources()), **dict(_from_builtins())}.items()):
        text = _clean(doc)
        if len(text) < MIN_CHARACTERS or text in seen:
            continue
        seen.add(text)
        entries.append({"name": name, "text": text})
    return entries


def load(cache: pathlib.Path, count: int | None) -> list[dict]:
    """Returns `count` docstrings (None: all), always the same ones. Parsing takes seconds, so the result is cached in `cache`."""
    key = hashlib.sha256((sys.version + pathlib.Path(__file__).read_text()).encode()).hexdigest()
    kept = json.loads(cache.read_text()) if cache.exists() else {}
    if kept.get("key") != key:
        kept = {"key": key, "entries": all_docstrings()}
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(kept))
    entries = kept["entries"]
    if count is None or count >= len(entries):
        return entries
    return [entries[i] for i in sorted(random.Random(0).sample(range(len(entries)), count))]
