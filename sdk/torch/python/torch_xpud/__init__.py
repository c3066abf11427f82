"""PyTorch on xpud: torch.device("xpud"). Plain `import torch` imports this package through an entry point.

Without another accelerator xpud is set up at once (active). Beside a usable one, which it would displace, only when the program first uses xpud
(waiting).
"""

import torch  # noqa: F401  runs the entry point, if the program imports this package first

from . import accelerators, translate

other = None if translate.requested() else accelerators.usable_beside()
if other is None:
    from . import active  # noqa: F401
else:
    from . import waiting

    waiting.install(other)
