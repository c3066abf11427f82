"""An API server of Kubernetes for tests: resource.k8s.io/v1 with resourceclaims and resourceslices, over HTTPS.

It authenticates by a token that can be rotated, keeps versions and refuses stale ones, serves watches, validates objects, records what is asked of it,
and fails as it is told to. With an admission policy, it applies that to what it is asked to write. `python3 api_server.py FOLDER` serves until its standard input ends; a line there, {"call": NAME, "arguments": {...}}, calls a
method of ApiServer, and a line of output has its result. `--models` also validates objects with the packages of requirements.txt.
"""

import argparse
import copy
import dataclasses
import http.server
import json
import pathlib
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import typing
import uuid

import slice_rules

if typing.TYPE_CHECKING:
    import admission

GROUP = "resource.k8s.io/v1"
KINDS = {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice"}
NAMESPACED = {"resourceclaims"}
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid",
           429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Refused(Exception):
    """A request that is answered with a Status."""

    def __init__(self, code: int, message: str, reason: str | None = None):
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                       "reason": reason or REASONS[code], "code": code}


@dataclasses.dataclass(frozen=True)
class Target:
    """What a request is about. Without a name: all of them."""
    resource: str
    namespace: str
    name: str

    @staticmethod
    def of(path: str) -> "Target":
        parts = path.strip("/").split("/")
        if parts[:3] != ["apis", *GROUP.split("/")]:
            raise Refused(404, "the server could not find the requested resource")
        parts = parts[3:]
        namespace = ""
        if parts[:1] == ["namespaces"]:
            namespace, parts = parts[1], parts[2:]
        if not 1 <= len(parts) <= 2 or parts[0] not in KINDS or bool(namespace) != (parts[0] in NAMESPACED):
            raise Refused(404, "the server could not find the requested resource")
        return Target(parts[0], namespace, parts[1] if len(parts) == 2 else "")


class Models:
    """Validation with the kubernetes package's models and kubernetes-validate: unknown fields, wrong types, missing fields."""

    MODELS = {"ResourceClaim": "ResourceV1ResourceClaim", "ResourceSlice": "V1ResourceSlice"}  # V1ResourceClaim is a container's

    def __init__(self):
        import kubernetes.client
        import kubernetes_validate
        self._client, self._validate = kubernetes.client.ApiClient(), kubernetes_validate

    def check(self, kind: str, item: dict) -> None:
        try:
            self._validate.validate(item, self._validate.latest_version(), strict=True)
            model = self._client._ApiClient__deserialize(item, self.MODELS[kind])  # the package offers it for answers of a server only
            back = self._client.sanitize_for_serialization(model)
        except Exception as failure:  # each package has exceptions of its own
            raise Refused(422, f"{kind} is invalid: {failure}") from failure
        lost = [key for part in ("spec", "status") for key in item.get(part) or {} if key not in back.get(part, {})]
        if lost:
            raise Refused(422, f"{kind} is invalid: the model does not know {lost}")


class Certificates:
    """An authority and a certificate for 127.0.0.1 that it has signed."""

    def __init__(self, folder: pathlib.Path):
        self.ca, self.key, self.certificate = folder / "ca.crt", folder / "server.key", folder / "server.crt"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._openssl(folder, "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test-authority")
        self._openssl(folder, "req", "-new", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=test-server")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
        self._openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names",
                      "-out", "server.crt")

    @staticmethod
    def _openssl(folder: pathlib.Path, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Store:
    """Objects with versions, and the changes since the oldest version that a watch may begin with. Thread-safe."""

    KEPT = 1000

    def __init__(self):
        self.changed = threading.Condition()
        self.objects: dict[Target, dict] = {}
        self.version = 100
        self.oldest = 100
        self.changes: list[tuple[int, str, Target, dict]] = []

    def get(self, target: Target) -> dict:
        with self.changed:
            if target not in self.objects:
                raise Refused(404, f'{target.resource}.resource.k8s.io "{target.name}" not found')
            return copy.deepcopy(self.objects[target])

    def list(self, wanted) -> tuple[int, list[dict]]:
        with self.changed:
            return self.version, [copy.deepcopy(item) for target, item in sorted(self.objects.items(), key=str) if wanted(target, item)]

    def put(self, target: Target, item: dict, create: bool | None = None) -> dict:
        """Creates or replaces an object. `create`: which of these it must be."""
        with self.changed:
            old = self.objects.get(target)
            if create and old:
                raise Refused(409, f'{target.resource} "{target.name}" already exists', "AlreadyExists")
            if create is False and not old:
                raise Refused(404, f'{target.resource}.resource.k8s.io "{target.name}" not found')
            given = item.get("metadata", {}).get("resourceVersion")
            if old and given and given != old["metadata"]["resourceVersion"]:
                raise Refused(409, f'Operation cannot be fulfilled on {target.resource} "{target.name}": the object has been modified')
            item = copy.deepcopy(item)
            metadata = item.setdefault("metadata", {})
            metadata["uid"] = old["metadata"]["uid"] if old else metadata.get("uid") or str(uuid.uuid4())
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            metadata["name"] = target.name
            if target.namespace:
                metadata["namespace"] = target.namespace
            self._change("MODIFIED" if old else "ADDED", target, item)
            self.objects[target] = item
            return copy.deepcopy(item)

    def remove(self, target: Target) -> dict:
        item = self.get(target)
        with self.changed:
            self.objects.pop(target, None)
            self._change("DELETED", target, item)
        return item

    def forget(self) -> None:
        """Watches can begin no earlier than now."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            self.changed.notify_all()

    def _change(self, kind: str, target: Target, item: dict) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append((self.version, kind, target, copy.deepcopy(item)))
        if len(self.changes) > self.KEPT:
            self.oldest = self.changes[0][0]
            del self.changes[0]
        self.changed.notify_all()


class Faults:
    """What goes wrong from now on. Thread-safe, because each is one assignment or is taken under the lock."""

    def __init__(self):
        self._lock = threading.Lock()
        self._codes: list[int] = []  # of the next requests; 0: the connection is closed without an answer
        self.delay = 0.0  # seconds before each answer
        self.body: bytes | None = None  # instead of each answer's
        self.gone_in_stream = True  # a watch from a forgotten version is told by an event, not by the status of HTTP
        self.drop_consumable = False  # the feature DRAConsumableCapacity is off
        self.drop_taints = False  # the feature DRADeviceTaints is off

    def fail(self, code: int, count: int = 1) -> None:
        with self._lock:
            self._codes = [code] * count

    def take(self) -> int | None:
        with self._lock:
            return self._codes.pop(0) if self._codes else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    owner: "ApiServer"

    def setup(self) -> None:
        self.request.settimeout(30)
        self.request.do_handshake()
        super().setup()

    def log_message(self, *_) -> None:
        pass

    def _answer(self, code: int, value: dict) -> None:
        body = json.dumps(value).encode() if self.owner.faults.body is None else self.owner.faults.body
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        faults = self.owner.faults
        time.sleep(faults.delay)
        code = faults.take()
        if code == 0:
            self.close_connection = True
            self.request.shutdown(socket.SHUT_RDWR)
            return
        try:
            if code:
                raise Refused(code, "as the test wants it")
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            self.owner.authenticate(self.headers.get("Authorization", ""))
            target = Target.of(url.path)
            if self.command == "GET" and query.get("watch") in ("1", "true"):
                self._watch(target, query)
            else:
                self._answer(201 if self.command == "POST" else 200, self.owner.call(self.command, target, query, body))
        except Refused as refused:
            self._answer(refused.code, refused.status)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def _watch(self, target: Target, query: dict) -> None:
        events = self.owner.watch(target, query)  # refuses before the head is sent
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, handler, context: ssl.SSLContext):
        self._context, self._open, self._lock = context, set(), threading.Lock()
        super().__init__(("127.0.0.1", port), handler)

    def get_request(self):
        raw, address = super().get_request()
        wrapped = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)  # the handshake is the handler's thread's
        with self._lock:
            self._open.add(wrapped)
        return wrapped, address

    def shutdown_request(self, request) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address) -> None:
        pass  # clients that hang up or do not trust the certificate

    def cut(self) -> None:
        """Closes every connection."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it is closed already


class ApiServer:
    """Serves in threads of this process until close()."""

    def __init__(self, folder: pathlib.Path, models: bool = False, policy: "admission.Policy | None" = None, user: dict | None = None):
        """`policy`: applied to writes over HTTPS, whose token is `user`'s."""
        self.faults = Faults()
        self.policy, self.user = policy, user
        self.store = Store()
        self.allowed: set[tuple[str, str]] | None = None  # (verb, resource) of the role; None: all
        self._models = Models() if models else None
        self._lock = threading.Lock()
        self._asked: list[tuple[str, str, str]] = []
        self._watches = 0  # a watch ends when this is no longer the number that it began with
        self._certificates = Certificates(folder)
        self.ca_file, self.token_file = self._certificates.ca, folder / "token"
        self._port = 0
        self._listener: Listener | None = None
        self.rotate()
        self.start()
        self.url = f"https://127.0.0.1:{self._port}"

    # ---- what tests do

    def start(self) -> None:
        """Listens, on the same port as before."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificates.certificate, self._certificates.key)
        self._listener = Listener(self._port, type("Bound", (Handler,), {"owner": self}), context)
        self._port = self._listener.server_address[1]
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Nobody listens; objects are kept."""
        if self._listener:
            self._listener.shutdown()
            self._listener.server_close()
            self.end_watches()
            self._listener.cut()
            self._listener = None

    close = stop

    def rotate(self, write: bool = True) -> None:
        """Only a new token is valid from now on. Unless `write`, the file keeps the old one, which has expired."""
        self._token = secrets.token_urlsafe(24)
        if write:
            temporary = self.token_file.with_suffix(".new")
            temporary.write_text(self._token + "\n")
            temporary.rename(self.token_file)

    def put(self, resource: str, item: dict) -> dict:
        """Creates or replaces an object, whatever its version, as another client would."""
        metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
        item = {"apiVersion": GROUP, "kind": KINDS[resource]} | item | {"metadata": metadata}
        if self._models:
            self._models.check(KINDS[resource], item)
        return self.store.put(Target(resource, metadata.get("namespace", ""), metadata["name"]), item)

    def remove(self, resource: str, name: str, namespace: str = "") -> dict:
        return self.store.remove(Target(resource, namespace, name))

    def all(self, resource: str) -> list[dict]:
        return self.store.list(lambda target, _: target.resource == resource)[1]

    def forget(self) -> None:
        self.store.forget()

    def end_watches(self) -> None:
        with self.store.changed:
            self._watches += 1
            self.store.changed.notify_all()

    def cut(self) -> None:
        if self._listener:
            self._listener.cut()

    def fail(self, code: int, count: int = 1) -> None:
        self.faults.fail(code, count)

    def set_fault(self, name: str, value) -> None:
        if not hasattr(self.faults, name):
            raise ValueError(f"no fault {name}")
        setattr(self.faults, name, value.encode() if name == "body" and value is not None else value)

    def allow(self, role: list[list[str]] | None) -> None:
        self.allowed = None if role is None else {(verb, resource) for verb, resource in role}

    def asked(self) -> list[tuple[str, str, str]]:
        """Every (verb, resource, name) since the last call; of a list or watch, the name that its selector has."""
        with self._lock:
            asked, self._asked = self._asked, []
            return asked

    # ---- what requests do

    def authenticate(self, header: str) -> None:
        if not secrets.compare_digest(header, f"Bearer {self._token}"):
            raise Refused(401, "Unauthorized")

    def _record(self, verb: str, target: Target, query: dict) -> None:
        selected = query.get("fieldSelector", "").removeprefix("metadata.name=")
        with self._lock:
            self._asked.append((verb, target.resource, target.name or selected))
        if self.allowed is not None and (verb, target.resource) not in self.allowed:
            raise Refused(403, f'{target.resource}.resource.k8s.io is forbidden: the test\'s role cannot {verb} resource "{target.resource}"')

    def call(self, method: str, target: Target, query: dict, body: bytes) -> dict:
        verb = {"GET": "get" if target.name else "list", "POST": "create", "PUT": "update", "DELETE": "delete"}.get(method)
        if verb is None or (verb in ("create", "list")) == bool(target.name):
            raise Refused(400, f"the server does not allow {method} here")
        if verb == "create":
            item = self._parse(target, body)
            target = dataclasses.replace(target, name=item["metadata"].get("name", ""))
        self._record(verb, target, query)
        if verb == "get":
            return self.store.get(target)
        if verb == "list":
            version, items = self.store.list(self._selection(target, query))
            return {"kind": f"{KINDS[target.resource]}List", "apiVersion": GROUP, "metadata": {"resourceVersion": str(version)}, "items": items}
        if verb == "delete":
            return self.store.remove(target)
        if verb == "update":
            item = self._parse(target, body)
            if item["metadata"].get("name") != target.name:
                raise Refused(400, "the name of the object does not match the name on the URL")
        self._admit(verb, target, item)
        self._validate(target, item)
        return self.store.put(target, self._as_stored(item), create=verb == "create")

    def _admit(self, verb: str, target: Target, item: dict) -> None:
        if self.policy is None:
            return
        reason = self.policy.denial(verb.upper(), target.resource, self.user, item, self.store.objects.get(target))
        if reason is not None:
            raise Refused(422, f'{target.resource}.resource.k8s.io "{target.name}" is forbidden: ValidatingAdmissionPolicy \'{self.policy.name}\' with '
                               f"binding '{self.policy.name}' denied request: {reason}")

    @staticmethod
    def _selection(target: Target, query: dict):
        selector = query.get("fieldSelector", "")
        if selector and not selector.startswith("metadata.name="):
            raise Refused(400, f"field label not supported: {selector}")
        name = selector.removeprefix("metadata.name=")
        return lambda at, _: at.resource == target.resource and at.namespace == target.namespace and name in ("", at.name)

    @staticmethod
    def _parse(target: Target, body: bytes) -> dict:
        try:
            item = json.loads(body)
        except ValueError as failure:
            raise Refused(400, f"the object is not JSON: {failure}") from failure
        if not isinstance(item, dict) or item.get("kind") != KINDS[target.resource] or item.get("apiVersion") != GROUP or "metadata" not in item:
            raise Refused(400, f"the object is no {KINDS[target.resource]} of {GROUP}")
        return item

    def _validate(self, target: Target, item: dict) -> None:
        if target.resource == "resourceslices":
            old = self.store.objects.get(target)
            found = slice_rules.violations(item, old)
            if found:
                raise Refused(422, f'ResourceSlice "{target.name}" is invalid: {"; ".join(found)}')
        if self._models:
            self._models.check(KINDS[target.resource], item)

    def _as_stored(self, item: dict) -> dict:
        """Without the fields of features that are off."""
        item = copy.deepcopy(item)
        for device in item.get("spec", {}).get("devices", []):
            if self.faults.drop_consumable:
                device.pop("allowMultipleAllocations", None)
                for capacity in device.get("capacity", {}).values():
                    capacity.pop("requestPolicy", None)
            if self.faults.drop_taints:
                device.pop("taints", None)
        return item

    def watch(self, target: Target, query: dict):
        """Returns the events from a version on, one by one, as they happen."""
        self._record("watch", target, query)
        since = int(query.get("resourceVersion") or self.store.version)
        wanted = self._selection(target, query)
        gone = Refused(410, f"too old resource version: {since} ({self.store.oldest})")
        if since < self.store.oldest and not self.faults.gone_in_stream:
            raise gone
        end = time.monotonic() + float(query.get("timeoutSeconds") or 3600)
        return self._events(since, wanted, gone, end, self._watches)

    def _events(self, since: int, wanted, gone: Refused, end: float, watches: int):
        while True:
            with self.store.changed:
                if since < self.store.oldest:
                    yield {"type": "ERROR", "object": gone.status}
                    return
                found = [change for change in self.store.changes if change[0] > since]
                if not found:
                    left = end - time.monotonic()
                    if left <= 0 or self._watches != watches:
                        return
                    self.store.changed.wait(min(left, 1))
            for version, kind, target, item in found:
                since = version
                if wanted(target, item):
                    yield {"type": kind, "object": item}


# The methods that a line of input may call.
CALLS = {"start", "stop", "rotate", "put", "remove", "all", "forget", "end_watches", "cut", "fail", "set_fault", "allow", "asked"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Serves the tests' API server.")
    parser.add_argument("folder", type=pathlib.Path, help="gets the certificates and the token")
    parser.add_argument("--models", action="store_true", help="also validate objects with the packages of requirements.txt")
    arguments = parser.parse_args()
    server = ApiServer(arguments.folder, arguments.models)
    print(json.dumps({"url": server.url, "token_file": str(server.token_file), "ca_file": str(server.ca_file)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["call"] not in CALLS:
            raise ValueError(f"no call {request['call']}")
        try:
            answer = {"result": getattr(server, request["call"])(**request.get("arguments", {}))}
        except (Refused, ValueError, KeyError) as failure:
            answer = {"error": str(failure)}
        print(json.dumps(answer), flush=True)
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
