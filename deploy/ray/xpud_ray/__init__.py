"""Ray: tasks and actors with a guaranteed part of a device that an xpud daemon owns.

`part` and `ray_options` are for programs, `RuntimeEnvPlugin` for RAY_RUNTIME_ENV_PLUGINS of `ray start`.
"""

from ._options import part, ray_options
from ._plugin import RuntimeEnvPlugin

__all__ = ["RuntimeEnvPlugin", "part", "ray_options"]
