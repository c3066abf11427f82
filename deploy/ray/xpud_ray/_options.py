"""Options of Ray's tasks and actors, with a part of a device."""

from collections.abc import Callable, Sequence
from typing import Any

import ray

from ._parts import Part


def ray_options(share: int, memory: int | str | None = None, class_: str | None = None, devices: Sequence[int] = (), name: str | None = None,
                **options: Any) -> dict[str, Any]:
    """Returns options for `ray.remote` and `.options()`: those given, the part in "runtime_env", and what Ray's scheduler counts in "resources".

    `share`: hundredths of each device's time, 1 to 100. `memory`: on each device, in bytes or with a unit ("4GiB"). `class_`: "realtime", "interactive"
    or "batch". `devices`: the daemon's numbers; none: all of them. `name`: parts of different names are different claims, though all else is equal.

    The resource is "xpud", or with `devices` "xpud-N" for each; an entry in `resources` that is given has precedence. Raises ValueError for values that
    are not allowed, with what is.
    """
    part = Part.parse({"share": share, "memory": memory, "class": class_, "devices": list(devices), "name": name})
    counted = {f"xpud-{device}": part.share / 100 for device in part.devices} or {"xpud": part.share / 100}
    return options | {"runtime_env": {**(options.get("runtime_env") or {}), "xpud": part.value()},
                      "resources": counted | (options.get("resources") or {})}


def part(share: int, memory: int | str | None = None, class_: str | None = None, devices: Sequence[int] = (), name: str | None = None,
         **options: Any) -> Callable[[Any], Any]:
    """`ray.remote` with a part of a device: a decorator for functions and classes, with the arguments of `ray_options`.

        @xpud_ray.part(share=25, memory="4GiB", class_="batch", num_cpus=1)
        class Server: ...
    """
    made = ray_options(share, memory, class_, devices, name, **options)

    def decorate(function_or_class: Any) -> Any:
        if hasattr(function_or_class, "remote"):
            raise TypeError("xpud_ray.part takes the place of ray.remote: remove @ray.remote, and give its options to part")
        return ray.remote(**made)(function_or_class)
    return decorate
