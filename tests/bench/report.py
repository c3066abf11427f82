"""The table of results/README.md: for each kind of machine, the latest result of each row that has a target."""

import pathlib
from collections.abc import Iterable

import results

PAGE = results.FOLDER / "README.md"
BEGIN = "<!-- report begin: made by tools/bench --report, do not edit -->\n"
END = "<!-- report end -->"


def latest(documents: list[dict]) -> dict[tuple[str, str], list[dict]]:
    """Returns (benchmark, name) -> the rows of the last of `documents` that has it."""
    found = {}
    for document in documents:
        found |= results.grouped(document["rows"], lambda row: (row["benchmark"], row["name"]))
    return found


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cell(target: str, runs: list[dict]) -> str:
    """Formats the medians of a row's runs: value and, if there is a baseline, the ratio. Bold if they miss the target."""
    if not runs:
        return ""
    value, ratio = results.median(runs, "value"), results.median(runs, "ratio")
    parts = [f"{figure(value)} {runs[-1]['unit']}".strip()] if value is not None else []
    parts += [f"{ratio:.2f}x"] if ratio is not None else []
    text = ", ".join(parts)
    return f"**{text}**" if results.is_met(target, runs) is False else text


def span(dates: Iterable[str]) -> str:
    ordered = sorted(dates)
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def column(documents: list[dict], targets: dict[tuple, str], benchmarks: set[str]) -> dict[tuple, list[dict]]:
    """Returns the latest runs of each row of the table. `documents` are those of one kind of machine, the oldest first."""
    runs = results.grouped(row for latest_runs in latest(documents).values() for row in latest_runs if not row.get("retired"))
    return {key: rows for key, rows in runs.items() if targets[key] and key[0] in benchmarks}


def table(documents: list[dict], benchmarks: set[str]) -> str:
    """Returns a line for each row of `benchmarks` with a target, and a column for each kind of machine. The newest document's target applies to all."""
    measured = sorted((document for document in documents if not document.get("smoke")), key=lambda each: each["date"])
    targets = {results.key_of(row): row["target"] for document in measured for row in document["rows"]}
    kinds = results.grouped(measured, lambda document: document["machine"]["kind"])
    columns = {kind: column(kinds[kind], targets, benchmarks) for kind in sorted(kinds)}
    columns = {kind: rows for kind, rows in columns.items() if rows}
    keys = sorted({key for rows in columns.values() for key in rows}, key=lambda key: ("/" in key[0], key))
    dates = {id(row): document["date"][:10] for document in measured for row in document["rows"]}
    heads = [f"{kind}, {span(dates[id(run)] for runs in rows.values() for run in runs)}" for kind, rows in columns.items()]
    lines = ["| row | baseline | target | " + " | ".join(heads) + " |", "|---" * (3 + len(columns)) + "|"]
    for key in keys:
        benchmark, name, baseline = key
        cells = [f"`{benchmark}`: {name}", baseline, targets[key], *(cell(targets[key], rows.get(key, [])) for rows in columns.values())]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def with_table(page: str, made: str) -> str:
    """Raises ValueError if there are no markers for the table."""
    begin, end = page.find(BEGIN), page.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"no place for the table; put these two lines there:\n{BEGIN}{END}")
    return page[: begin + len(BEGIN)] + made + page[end:]


def write(benchmarks: set[str]) -> None:
    PAGE.write_text(with_table(PAGE.read_text(), table(results.all_saved(), benchmarks)))
