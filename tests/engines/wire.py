"""Protocol Buffers' encoding, written from its specification: the tests' kubelet shares no message definition with the agent, so that a wrong
field number of either shows.

A message is a dict from field numbers. SCHEMAS below says what a field is: STRING, BYTES, INT, BOOL, another schema (a message), [one of these] (a
list), or {str: one of these} (a map from strings).
"""

STRING, BYTES, INT, BOOL = "string", "bytes", "int", "bool"


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append((value & 0x7F) | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class Schema:
    """The fields of a message: name -> (number, kind)."""

    def __init__(self, **fields):
        self.fields = fields
        self.by_number = {number: (name, kind) for name, (number, kind) in fields.items()}

    def encode(self, message: dict) -> bytes:
        unknown = set(message) - set(self.fields)
        if unknown:
            raise ValueError(f"no such fields: {unknown}")
        return b"".join(self._encode_field(*self.fields[name], value) for name, value in message.items())

    def _encode_field(self, number: int, kind, value) -> bytes:
        if isinstance(kind, list):
            return b"".join(self._encode_field(number, kind[0], each) for each in value)
        if isinstance(kind, dict):
            entry = Schema(key=(1, STRING), value=(2, kind[str]))
            return b"".join(self._encode_field(number, entry, {"key": key, "value": each}) for key, each in value.items())
        if kind in (INT, BOOL):
            return _varint(number << 3) + _varint(int(value))
        data = kind.encode(value) if isinstance(kind, Schema) else value.encode() if kind == STRING else value
        return _varint(number << 3 | 2) + _varint(len(data)) + data

    def decode(self, data: bytes) -> dict:
        """Fields that are not there have the value that Protocol Buffers gives them. A field that the schema lacks is an error."""
        message = {name: self._default(kind) for name, (_, kind) in self.fields.items()}
        at = 0
        while at < len(data):
            tag, at = _read_varint(data, at)
            number, form = tag >> 3, tag & 7
            if form == 0:
                value, at = _read_varint(data, at)
            elif form == 2:
                length, at = _read_varint(data, at)
                value, at = data[at:at + length], at + length
            else:
                raise ValueError(f"field {number} has the wire type {form}")
            if number not in self.by_number:
                raise ValueError(f"a field {number} is not expected")
            name, kind = self.by_number[number]
            if isinstance(kind, dict):
                entry = Schema(key=(1, STRING), value=(2, kind[str])).decode(value)
                message[name][entry["key"]] = entry["value"]
            elif isinstance(kind, list):
                message[name].append(self._value(kind[0], value))
            else:
                message[name] = self._value(kind, value)
        return message

    @staticmethod
    def _default(kind):
        if isinstance(kind, list):
            return []
        if isinstance(kind, dict):
            return {}
        return {STRING: "", BYTES: b"", INT: 0, BOOL: False}.get(kind) if isinstance(kind, str) else None

    @staticmethod
    def _value(kind, value):
        if isinstance(kind, Schema):
            return kind.decode(value)
        if kind == STRING:
            return value.decode()
        return bool(value) if kind == BOOL else _signed(value) if kind == INT else value


# ---- registration of plugins, v1
EMPTY = Schema()
PLUGIN_INFO = Schema(type=(1, STRING), name=(2, STRING), endpoint=(3, STRING), supported_versions=(4, [STRING]))
REGISTRATION_STATUS = Schema(plugin_registered=(1, BOOL), error=(2, STRING))

# ---- dynamic resource allocation, v1 and v1beta1
CLAIM = Schema(namespace=(1, STRING), uid=(2, STRING), name=(3, STRING))
CLAIMS = Schema(claims=(1, [CLAIM]))
PREPARED_DEVICE = Schema(request_names=(1, [STRING]), pool_name=(2, STRING), device_name=(3, STRING), cdi_device_ids=(4, [STRING]))
PREPARED = Schema(claims=(1, {str: Schema(devices=(1, [PREPARED_DEVICE]), error=(2, STRING))}))
UNPREPARED = Schema(claims=(1, {str: Schema(error=(1, STRING))}))

# ---- health of devices, v1 (v1beta1 and v1alpha1 are alike)
HEALTH = Schema(devices=(1, [Schema(device=(1, Schema(pool_name=(1, STRING), device_name=(2, STRING))), health=(2, INT), last_updated_time=(3, INT),
                                    health_check_timeout_seconds=(4, INT), message=(5, STRING))]))
HEALTHY, UNHEALTHY = 1, 2

# ---- device plugins, v1beta1
PLUGIN_OPTIONS = Schema(pre_start_required=(1, BOOL), get_preferred_allocation_available=(2, BOOL))
REGISTER = Schema(version=(1, STRING), endpoint=(2, STRING), resource_name=(3, STRING), options=(4, PLUGIN_OPTIONS))
NUMA = Schema(nodes=(1, [Schema(ID=(1, INT))]))
PLUGIN_DEVICES = Schema(devices=(1, [Schema(ID=(1, STRING), health=(2, STRING), topology=(3, NUMA))]))
PREFERRED_REQUEST = Schema(container_requests=(1, [Schema(available_deviceIDs=(1, [STRING]), must_include_deviceIDs=(2, [STRING]),
                                                          allocation_size=(3, INT))]))
PREFERRED = Schema(container_responses=(1, [Schema(deviceIDs=(1, [STRING]))]))
ALLOCATE = Schema(container_requests=(1, [Schema(devices_ids=(1, [STRING]))]))
MOUNT = Schema(container_path=(1, STRING), host_path=(2, STRING), read_only=(3, BOOL))
DEVICE_NODE = Schema(container_path=(1, STRING), host_path=(2, STRING), permissions=(3, STRING))
ALLOCATED = Schema(container_responses=(1, [Schema(envs=(1, {str: STRING}), mounts=(2, [MOUNT]), devices=(3, [DEVICE_NODE]), annotations=(4, {str: STRING}),
                                                   cdi_devices=(5, [Schema(name=(1, STRING))]))]))

# ---- which containers have which devices, v1
CONTAINER_DEVICES = Schema(resource_name=(1, STRING), device_ids=(2, [STRING]), topology=(3, NUMA))
CDI_DEVICE = Schema(name=(1, STRING))
CLAIM_RESOURCE = Schema(cdi_devices=(1, [CDI_DEVICE]), driver_name=(2, STRING), pool_name=(3, STRING), device_name=(4, STRING), share_id=(5, STRING))
DYNAMIC_RESOURCE = Schema(claim_name=(2, STRING), claim_namespace=(3, STRING), claim_resources=(4, [CLAIM_RESOURCE]))
CONTAINER_RESOURCES = Schema(name=(1, STRING), devices=(2, [CONTAINER_DEVICES]), cpu_ids=(3, [INT]), dynamic_resources=(5, [DYNAMIC_RESOURCE]))
POD_RESOURCES = Schema(pod_resources=(1, [Schema(name=(1, STRING), namespace=(2, STRING), containers=(3, [CONTAINER_RESOURCES]))]))
