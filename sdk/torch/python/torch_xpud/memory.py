"""torch.xpud.memory: what this process and others use of a device's memory, and the history of allocations."""

import os
import pickle
import sys

import torch

from . import _C
from .index import index_of



def memory_stats(device=None):
    return torch.accelerator.memory_stats(index_of(device))


def memory_stats_as_nested_dict(device=None):
    """Returns memory_stats() as nested dicts: ["allocated_bytes"]["all"]["current"] is memory_stats()["allocated_bytes.all.current"]."""
    nested = {}
    for name, value in memory_stats(device).items():
        *groups, last = name.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return nested


def memory_summary(device=None, abbreviated=False):
    """Returns a table of the device's memory, as text. `abbreviated` changes nothing: the table is short."""
    rows = [(name, function(device) / 2**20) for name, function in (("allocated", memory_allocated), ("peak", max_memory_allocated),
                                                                    ("reserved", memory_reserved))]
    device_name = _C.device_properties(index_of(device))["name"]
    return "\n".join([f"memory of {device_name} (MiB)"] + [f"  {name:<10} {value:10.1f}" for name, value in rows])


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(index_of(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def mem_get_info(device=None):
    """Returns (free, total) bytes. Free is what this process could still allocate, whatever others hold and quotas allow. Waits for its work."""
    return torch.accelerator.get_memory_info(index_of(device))


def device_memory_used(device=None):
    """Returns the bytes of the device's memory that this process cannot get any more: used by it or by others, or beyond its quota."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache():
    """Does nothing: the daemon caches memory for all its clients."""


_fractions = {}


def set_per_process_memory_fraction(fraction, device=None):
    """Limits this process to a fraction (0 to 1) of a device's memory. What would take more raises OutOfMemoryError. Raises ValueError for other numbers."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"Invalid type for fraction argument, must be `float`, but got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = index_of(device)
    _C.set_memory_limit(index, 2**64 - 1 if fraction == 1 else int(fraction * _C.device_properties(index)["total_memory"]))
    _fractions[index] = float(fraction)


def get_per_process_memory_fraction(device=None):
    """Returns what set_per_process_memory_fraction set, otherwise 1.0."""
    return _fractions.get(index_of(device), 1.0)


# ---- the history of allocations


def _record_memory_history(enabled="all", context="all", stacks="python", max_entries=sys.maxsize, clear_history=False, skip_actions=None):
    """Records where this process allocates and frees memory of xpud devices, for _snapshot().

    enabled: None or False stops; "state" records where memory in use came from; "all" or True also records each allocation and free, the newest
    `max_entries`. context: which stacks are recorded: None, "state" or "alloc" those of allocations, "all" those of frees, too. stacks: "python",
    or "all" with C++ functions. `skip_actions`: events that a snapshot leaves out. Raises ValueError for other values.
    """
    global _skipped
    if enabled not in (None, False, True, "state", "all"):
        raise ValueError(f"enabled must be None, 'state' or 'all', but got {enabled!r}")
    if context not in (None, "state", "alloc", "all"):
        raise ValueError(f"context must be None, 'state', 'alloc' or 'all', but got {context!r}")
    if stacks not in ("python", "all"):
        raise ValueError(f"stacks must be 'python' or 'all', but got {stacks!r}")
    unknown = set(skip_actions or ()) - set(_ACTIONS)
    if unknown:
        raise ValueError(f"unknown actions {sorted(unknown)}; known are {list(_ACTIONS)}")
    if clear_history:
        _C.clear_memory_history()
    if not enabled:
        return _C.stop_memory_history()
    _skipped = frozenset(skip_actions or ())
    _C.start_memory_history(enabled != "state", context is not None, context == "all", stacks == "all", max_entries)


_ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom")
_skipped = frozenset()
_LARGE = 1 << 20  # bytes from which torch.cuda calls a segment large


def _segment(block):
    """Returns a block of memory as a segment that has only this block: the daemon, not this process, keeps freed memory."""
    size = {"total_size": block["bytes"], "allocated_size": block["bytes"], "active_size": block["bytes"], "requested_size": block["bytes"]}
    part = {"address": block["address"], "size": block["bytes"], "requested_size": block["bytes"], "state": "active_allocated", "frames": block["frames"]}
    return {"device": block["device"], "address": block["address"], "stream": 0, "segment_type": "large" if block["bytes"] > _LARGE else "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": block["frames"], "blocks": [part], **size}


def _entries(event):
    """Yields the entries of a trace that an event stands for."""
    entry = {"addr": event["address"], "size": event["bytes"], "stream": event["stream"], "time_us": event["time_us"], "frames": event["frames"],
             "segment_pool_id": (0, 0)}
    if event["action"] == "oom":
        yield {**entry, "action": "oom", "device_free": entry.pop("addr")}
        return
    for action in ("segment_alloc", "alloc") if event["action"] == "alloc" else ("free_requested", "free_completed", "segment_free"):
        if action not in _skipped:
            yield {**entry, "action": action}


def memory_snapshot():
    """Returns this process's memory in use on all devices, as a list of segments of one block each."""
    return [_segment(block) for block in _C.memory_snapshot()["blocks"]]


def _snapshot(device=None, augment_with_fx_traces=False):
    """Returns memory in use and the history of allocations as a dict that pytorch.org/memory_viz and torch.cuda._memory_viz read.

    "segments" are those of memory_snapshot(), "device_traces" has a list of events for each device. A stack is empty if it was not recorded.
    """
    recorded = _C.memory_snapshot()
    traces = [[] for _ in range(torch.accelerator.device_count())]
    for event in recorded["events"]:
        traces[event["device"]].extend(_entries(event))
    return {"segments": [_segment(block) for block in recorded["blocks"]], "device_traces": traces, "allocator_settings": {},
            "external_annotations": []}


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    """Writes _snapshot() to a file, for pytorch.org/memory_viz. The file is complete or not there."""
    unfinished = f"{filename}.{os.getpid()}"
    try:
        with open(unfinished, "wb") as file:
            pickle.dump(_snapshot(), file)
        os.replace(unfinished, filename)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
