"""Compares two sides of result files, each with one or several runs of the same rows.

A change exceeds the spread if the medians are further apart than the runs of either side. If both sides have a baseline, which was measured in
turns with the row, the ratio to it must have changed by more than its spread, too; otherwise only the machine was faster or slower.
"""

import dataclasses
import json

import results


@dataclasses.dataclass(frozen=True)
class Side:
    runs: int
    median: float
    spread: float  # maximum minus minimum

    @staticmethod
    def of(rows: list[dict], field: str) -> "Side | None":
        """None if no run has this field."""
        values = [row[field] for row in rows if row[field] is not None]
        return Side(len(values), results.median(rows, field), max(values) - min(values)) if values else None


def exceeds(old: Side, new: Side) -> bool | None:
    """None if neither side has several runs."""
    return abs(new.median - old.median) > max(old.spread, new.spread) if max(old.runs, new.runs) > 1 else None


@dataclasses.dataclass(frozen=True)
class Change:
    benchmark: str
    name: str
    baseline: str
    unit: str
    old: Side | None  # the values; None if this side lacks the row
    new: Side | None
    old_ratio: Side | None  # to the baseline
    new_ratio: Side | None

    @property
    def ratio(self) -> float | None:
        return self.new.median / self.old.median if self.old and self.new and self.old.median else None

    @property
    def exceeds_spread(self) -> bool | None:
        """None if unknown, because there is one run on each side."""
        if not (self.old and self.new):
            return None
        of_values = exceeds(self.old, self.new)
        return of_values and exceeds(self.old_ratio, self.new_ratio) if self.old_ratio and self.new_ratio else of_values

    def as_dict(self) -> dict:
        return dataclasses.asdict(self) | {"ratio": self.ratio, "exceeds_spread": self.exceeds_spread}


def change(key: tuple, old: list[dict], new: list[dict]) -> Change:
    """If a side has only ratios to the baseline, the ratios are compared."""
    if all(any(row["value"] is not None for row in runs) for runs in (old, new) if runs):
        return Change(*key, (new or old)[-1]["unit"], *(Side.of(runs, field) for field in ("value", "ratio") for runs in (old, new)))
    return Change(*key, "x baseline", *(Side.of(runs, "ratio") for runs in (old, new)), None, None)


def changes(old: list[dict], new: list[dict]) -> list[Change]:
    """Returns a change for each row of either side's documents."""
    before, after = (results.grouped(row for document in documents for row in document["rows"]) for documents in (old, new))
    return [change(key, before.get(key, []), after.get(key, [])) for key in before | after]


def as_json(found: list[Change]) -> str:
    return json.dumps([each.as_dict() for each in found], indent=1) + "\n"


def line(each: Change) -> str:
    verdict = {True: "yes", False: "no", None: "unknown: one run a side"}[each.exceeds_spread]
    values = f"{each.old.median:>9.4g} +-{each.old.spread / 2:<7.2g} {each.new.median:>9.4g} +-{each.new.spread / 2:<7.2g} {each.unit:<12}"
    ratio = "" if each.ratio is None else f"{each.ratio:.3f}x"
    beside = f"{each.old_ratio.median:.3f} -> {each.new_ratio.median:.3f}x {each.baseline}" if each.old_ratio and each.new_ratio else each.baseline
    return f"{each.benchmark + ': ' + each.name:<52} {values} {ratio:>8}  {verdict:<6}  {beside}".rstrip()


def as_text(found: list[Change]) -> str:
    """Returns a line for each row of both sides, then the names of rows of one side only. '+-' is half of a side's spread."""
    lines = [f"{'row':<52} {'old':>9} {'':<9} {'new':>9} {'':<9} {'unit':<12} {'new/old':>8}  beyond the spread; beside the baseline"]
    lines += [line(each) for each in found if each.old and each.new]
    lines += [f"only in OLD: {each.benchmark}: {each.name}" for each in found if not each.new]
    lines += [f"only in NEW: {each.benchmark}: {each.name}" for each in found if not each.old]
    return "\n".join(lines) + "\n"
