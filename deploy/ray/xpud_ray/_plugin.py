"""The plugin that Ray's runtime-env agent loads, one process on each node."""

import asyncio
import logging
import os
from typing import Any

from ray._private.runtime_env.plugin import RuntimeEnvPlugin as RayPlugin

from ._agent import Agent
from ._grants import Grants
from ._parts import Part

# Ray counts environments as files on a disk. With a size above 0 in a cache of size 0, delete_uri follows the last worker of a URI at once.
SIZE = 1


class RuntimeEnvPlugin(RayPlugin):
    """`{"xpud": {"share": 25, "memory": "4GiB", "class": "batch", "devices": [0], "name": "server"}}` in a runtime environment.

    A URI is one claim. All workers on a node share it whose environments have equal values of "xpud": Ray's own key, the whole environment, cannot be
    used, because Ray's agent writes into `env_vars` between two calls of get_uris.
    """

    name = "xpud"

    def __init__(self) -> None:
        # Ray reads it after it has made the plugin.
        os.environ["RAY_RUNTIME_ENV_XPUD_CACHE_SIZE_GB"] = "0"
        self._grants = Grants(Agent.from_environment())

    @staticmethod
    def validate(runtime_env_dict: dict[str, Any]) -> None:
        """Raises ValueError with what was found and what is allowed."""
        Part.parse(runtime_env_dict["xpud"])

    def get_uris(self, runtime_env: dict[str, Any]) -> list[str]:
        """Returns none for an environment without a part, or with one that validate() refuses."""
        try:
            return [Part.parse(runtime_env["xpud"]).uri()] if runtime_env.get("xpud") is not None else []
        except ValueError:
            return []

    async def create(self, uri: str, runtime_env: dict[str, Any], context: Any, logger: logging.Logger) -> float:
        """Makes the grant. Raises AgentError with the agent's words."""
        try:
            await asyncio.wrap_future(self._grants.acquire(uri, Part.parse(runtime_env["xpud"])))
        except asyncio.CancelledError:
            self._grants.release(uri)  # Ray waits no longer, and will not delete what it has not got
            raise
        logger.info("%s has a grant at %s", uri, self._grants.address(uri))
        return SIZE

    def modify_context(self, uris: list[str], runtime_env: dict[str, Any], context: Any, logger: logging.Logger) -> None:
        """Sets XPUD_ADDRESS of the workers."""
        for uri in uris:
            context.env_vars["XPUD_ADDRESS"] = self._grants.address(uri)

    def delete_uri(self, uri: str, logger: logging.Logger) -> float:
        """Returns the grant, in the background: Ray's agent serves other environments meanwhile."""
        self._grants.release(uri)
        return SIZE
