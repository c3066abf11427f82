"""Reads the metrics of a daemon that was started with --metrics-listen."""

import re
import urllib.request

Series = tuple[dict[str, str], float]


def address_of(daemon) -> tuple[str, int]:
    host, port = re.search(r"metrics url=http://(\S+):(\d+)/metrics", daemon.log.read_text()).groups()
    return host, int(port)


def scrape(daemon, accept: str = "text/plain") -> str:
    host, port = address_of(daemon)
    request = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def names(text: str) -> set[str]:
    """Returns the names of all families, with or without series, and those of a histogram's series."""
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    return {name + suffix for name, kind in types for suffix in (("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",))}


def series(text: str, name: str) -> list[Series]:
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)
    return [(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)) for labels, value in found]
