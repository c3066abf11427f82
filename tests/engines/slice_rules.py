"""What an API server demands of a ResourceSlice of resource.k8s.io/v1, beyond its schema. Written down from the API's documentation, apart from the
agent's code."""

import fractions
import re

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d+))?")
DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def quantity(text: str) -> fractions.Fraction:
    match = QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no quantity")
    sign, digits, binary, decimal, exponent = match.groups()
    scale = fractions.Fraction(1)
    if binary:
        scale *= 1024 ** ("KMGTPE".index(binary[0]) + 1)
    else:
        scale *= fractions.Fraction(10) ** (DECIMAL[decimal] if decimal else int(exponent or 0))
    return (-1 if sign == "-" else 1) * fractions.Fraction(digits) * scale


def is_subdomain(text) -> bool:
    return isinstance(text, str) and len(text) <= 253 and SUBDOMAIN.fullmatch(text) is not None


def qualified(name: str) -> bool:
    domain, _, identifier = name.rpartition("/")
    return IDENTIFIER.fullmatch(identifier) is not None and (not domain or (len(domain) <= 63 and is_subdomain(domain)))


def capacity(name: str, value: dict) -> list[str]:
    """The rules of a consumable capacity."""
    whole = quantity(value["value"])
    policy = value.get("requestPolicy")
    if policy is None:
        return []
    values, allowed = [quantity(one) for one in policy.get("validValues", [])], policy.get("validRange")
    if values and allowed:
        return [f"{name}: both validValues and validRange"]
    if (values or allowed) and "default" not in policy:
        return [f"{name}: no default"]
    default = quantity(policy.get("default", "0"))
    found = []
    if values:
        found += [f"{name}: validValues are not in order"] * (values != sorted(values)) + [f"{name}: a valid value above the value"] * (max(values) > whole)
        found += [f"{name}: more than 10 validValues"] * (len(values) > 10) + [f"{name}: the default is no valid value"] * (default not in values)
    if allowed:
        if "min" not in allowed:
            return [f"{name}: no min"]
        low, high = quantity(allowed["min"]), quantity(allowed.get("max", value["value"]))
        if not low <= default <= high <= whole:
            found.append(f"{name}: not min {low} <= default {default} <= max {high} <= value {whole}")
        if "step" in allowed:
            step = quantity(allowed["step"])
            if step <= 0 or low + step > whole or (default - low) % step or (high - low) % step:
                found.append(f"{name}: the step {step} does not fit")
    return found


def attribute(name: str, value: dict) -> list[str]:
    if len(value) != 1 or set(value) - {"string", "int", "bool", "version"}:
        return [f"attribute {name}: not exactly one value"]
    if isinstance(value.get("string"), str) and len(value["string"].encode()) > 64:
        return [f"attribute {name}: more than 64 bytes"]
    return []


def taint(value: dict) -> list[str]:
    domain, _, name = value.get("key", "").rpartition("/")
    good = (LABEL_VALUE.fullmatch(name) and name and (not domain or is_subdomain(domain)) and LABEL_VALUE.fullmatch(value.get("value", ""))
            and value.get("effect") in ("None", "NoSchedule", "NoExecute") and TIME.fullmatch(value.get("timeAdded", "2026-01-01T00:00:00Z")))
    return [] if good else [f"taint {value}"]


def device(value: dict) -> list[str]:
    name, attributes, capacities = value.get("name", ""), value.get("attributes", {}), value.get("capacity", {})
    found = [] if LABEL.fullmatch(name) else [f"device name {name!r}"]
    found += [f"{name}: more than 32 attributes and capacities"] * (len(attributes) + len(capacities) > 32)
    found += [f"{name}: the name {key!r}" for key in [*attributes, *capacities] if not qualified(key)]
    found += [reason for key, one in attributes.items() for reason in attribute(key, one)]
    for key, one in capacities.items():
        if "requestPolicy" in one and not value.get("allowMultipleAllocations"):
            found.append(f"{name}: a requestPolicy without allowMultipleAllocations")
        found += capacity(key, one)
    found += [f"{name}: more than 16 taints"] * (len(value.get("taints", [])) > 16)
    return found + [reason for one in value.get("taints", []) for reason in taint(one)]


def violations(slice_: dict, old: dict | None = None) -> list[str]:
    """Returns what is wrong with a slice, or with its change from `old`."""
    spec = slice_.get("spec", {})
    pool, devices = spec.get("pool", {}), spec.get("devices", [])
    found = [] if is_subdomain(slice_.get("metadata", {}).get("name")) else ["metadata.name"]
    found += [] if is_subdomain(spec.get("driver")) and len(spec["driver"]) <= 63 else ["spec.driver"]
    found += [] if is_subdomain(spec.get("nodeName")) else ["spec.nodeName"]
    found += [] if pool.get("name") and all(is_subdomain(part) for part in pool["name"].split("/")) else ["spec.pool.name"]
    found += [] if pool.get("resourceSliceCount", 0) > 0 and pool.get("generation", -1) >= 0 else ["spec.pool"]
    found += ["too many devices"] * (len(devices) > (64 if any(one.get("taints") for one in devices) else 128))
    found += ["two devices of one name"] * (len({one.get("name") for one in devices}) != len(devices))
    if old is not None:
        before = old["spec"]
        found += [f"{what} cannot be changed" for what, one, other in (
            ("spec.driver", spec.get("driver"), before.get("driver")), ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
            ("spec.pool.name", pool.get("name"), before["pool"].get("name"))) if one != other]
    return found + [reason for one in devices for reason in device(one)]
