"""The value of "xpud" in a runtime environment: which part of which devices."""

import dataclasses
import hashlib
import json
import re
from typing import Any

KEYS = ("share", "memory", "class", "devices", "name")
CLASSES = ("realtime", "interactive", "batch")
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_MEMORY = (1 << 63) - 1
MAX_DEVICE = 1023


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(key: str, found: Any, allowed: str) -> ValueError:
    return ValueError(f"xpud: {key} is {found!r}; allowed: {allowed}")


def _bytes(value: Any) -> int:
    allowed = 'a size above 0, in bytes or with a unit: 1073741824, "512MiB", "4GiB"'
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,19})(|B|[KMGT]iB)", value)
        if not match:
            raise _refuse("memory", value, allowed)
        size = int(match[1]) * UNITS[match[2]]
    elif _is_number(value):
        size = value
    else:
        raise _refuse("memory", value, allowed)
    if not 0 < size <= MAX_MEMORY:
        raise _refuse("memory", value, allowed)
    return size


def _devices(value: Any) -> tuple[int, ...]:
    if (not isinstance(value, (list, tuple)) or not all(_is_number(each) and 0 <= each <= MAX_DEVICE for each in value)
            or len(set(value)) != len(value)):
        raise _refuse("devices", value, f"a list of the daemon's numbers of devices, 0 to {MAX_DEVICE}, each once")
    return tuple(value)


@dataclasses.dataclass(frozen=True)
class Part:
    """Hundredths of what the daemon guarantees of each device's time, and bytes on each device; see GrantRequest in grants.proto."""

    share: int
    memory_bytes: int | None  # None: nothing is kept free
    class_: str  # "": the agent's default
    devices: tuple[int, ...]  # the daemon's numbers; none: all
    name: str

    @staticmethod
    def parse(value: Any) -> "Part":
        """Raises ValueError with what was found and what is allowed."""
        if not isinstance(value, dict):
            raise ValueError(f'xpud: found {value!r}; allowed: a dict, such as {{"share": 25, "memory": "4GiB"}}')
        unknown = sorted(str(key) for key in value if key not in KEYS)
        if unknown:
            raise ValueError(f"xpud: unknown key {', '.join(unknown)}; allowed: {', '.join(KEYS)}")
        given = {key: each for key, each in value.items() if each is not None}
        share = given.get("share")
        if not _is_number(share) or not 1 <= share <= 100:
            raise _refuse("share", share, "a whole number from 1 to 100, hundredths of a device's time")
        class_ = given.get("class", "")
        if class_ not in ("", *CLASSES):
            raise _refuse("class", class_, ", ".join(CLASSES))
        name = given.get("name", "")
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{0,63}", name, re.ASCII):
            raise _refuse("name", name, "at most 63 letters, digits and . _ -")
        return Part(share, _bytes(given["memory"]) if "memory" in given else None, class_, _devices(given.get("devices", ())), name)

    def value(self) -> dict[str, Any]:
        """The part as a runtime environment has it, without what is not set."""
        written = {"share": self.share, "memory": self.memory_bytes, "class": self.class_, "devices": list(self.devices), "name": self.name}
        return {key: each for key, each in written.items() if each not in (None, "", [])}

    def uri(self) -> str:
        """The same for equal parts, however they are written."""
        return "xpud://" + hashlib.sha256(json.dumps(self.value(), sort_keys=True).encode()).hexdigest()[:16]
