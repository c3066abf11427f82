"""The grants that the workers of this node use."""

import atexit
import concurrent.futures
import logging
import secrets
import threading
import time

import grpc

from ._agent import Agent, AgentError, Grant
from ._parts import Part

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # after a renewal that failed
UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Grants:
    """One grant for each URI, renewed at a third of its lease until it is released. Thread-safe.

    Grants are asked for and returned one after the other, in the order of the calls. So a part that has just been released is free when it is asked for
    again.
    """

    def __init__(self, agent: Agent):
        self._agent = agent  # constant after construction
        self._calls = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="xpud-grants")
        self._changed = threading.Condition()
        self._held: dict[str, Grant] = {}  # by URI, guarded by _changed
        self._due: dict[str, float] = {}  # when a grant is renewed, in seconds of the monotonic clock; guarded by _changed
        self._unanswered: dict[str, str] = {}  # names by URI, of requests that may have made a grant; the thread of _calls
        threading.Thread(target=self._renew_forever, name="xpud-renewals", daemon=True).start()
        atexit.register(self._return_all)

    def acquire(self, uri: str, part: Part) -> concurrent.futures.Future[None]:
        """The future's result is None, or an AgentError. Does nothing if there is a grant for the URI."""
        return self._calls.submit(self._acquire, uri, part)

    def release(self, uri: str) -> None:
        """Returns the grant, if there is one, in the background."""
        self._calls.submit(self._release, uri)

    def address(self, uri: str) -> str:
        """REQUIRES: acquire() has succeeded for the URI."""
        with self._changed:
            return self._held[uri].address

    def _acquire(self, uri: str, part: Part) -> None:
        with self._changed:
            if uri in self._held:
                return
        name = self._unanswered.pop(uri, None) or f"ray-{uri.rpartition('/')[2]}-{secrets.token_hex(4)}"
        try:
            grant = self._agent.grant(name, part)
        except AgentError as failure:
            if failure.code in UNANSWERED:
                self._unanswered[uri] = name  # Ray tries again, and then gets the grant that there may be
            raise
        with self._changed:
            self._held[uri] = grant
            self._due[uri] = time.monotonic() + grant.lease_seconds / 3
            self._changed.notify()

    def _release(self, uri: str) -> None:
        with self._changed:
            grant = self._held.pop(uri, None)
            self._due.pop(uri, None)
        if grant:
            self._return(grant)

    def _return(self, grant: Grant) -> None:
        try:
            self._agent.return_(grant)
        except AgentError as failure:
            log.warning("grant %s was not returned, and ends with its lease: %s", grant.id, failure)

    def _return_all(self) -> None:
        with self._changed:
            held = list(self._held.values())
            self._held.clear()
            self._due.clear()
        for grant in held:
            self._return(grant)

    # ---- renewals

    def _renew_forever(self) -> None:
        while True:
            uri, grant = self._wait_for_due()
            try:
                self._agent.renew(grant)
                wait = grant.lease_seconds / 3
            except AgentError as failure:
                log.warning("grant %s was not renewed: %s", grant.id, failure)
                wait = RETRY_SECONDS if failure.code in UNANSWERED else None
            with self._changed:
                if self._held.get(uri) is not grant:
                    continue  # released meanwhile
                if wait is None:
                    del self._due[uri]  # it has ended: the workers have an error, and new ones get another grant when the last is gone
                else:
                    self._due[uri] = time.monotonic() + wait

    def _wait_for_due(self) -> tuple[str, Grant]:
        with self._changed:
            while True:
                uri = min(self._due, key=self._due.__getitem__, default=None)
                wait = self._due[uri] - time.monotonic() if uri is not None else None
                if wait is not None and wait <= 0:
                    return uri, self._held[uri]
                self._changed.wait(wait)
