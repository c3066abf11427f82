"""Requests beside a neighbour that fills the GPU: MiniLM, 100 a second, and GPT-2 at 30% load have a claim of class interactive, the neighbour has one of
class batch. A tiny op and its wait are beside a neighbour with the same class and weight.
"""

import neighbours
import rows
import sides
import workers
from channel import Child
from neighbours import Neighbour, Requests

RATE = 100  # requests a second
LIMITS = {256: "1.3"} if rows.SMOKE else {8192: "1.3", 16384: "1.5"}  # by the size of the products: of p99 over alone
CLASSES = {"web": "interactive", "night": "batch", "peer": "interactive"}


def main() -> None:
    doors = {key: neighbours.door(key, priority) for key, priority in CLASSES.items()}
    children: list[Child] = []

    def start(name: str, key: str, program: str = "worker.py") -> Child:
        children.append(workers.start(name, "xpud", doors[key], program))
        children[-1].expect("ready", 60)
        return children[-1]

    def measure(requests: Requests, neighbour: Neighbour, p99: str, kept: str = "ratio >= 0.9") -> None:
        neighbours.measure(requests, neighbour)
        neighbours.emit_times(requests, neighbour, sides.target(p99))
        neighbours.emit_kept(requests, neighbour, sides.target(kept))

    try:
        encoder = start("requests", "web")
        workers.opened(encoder)
        requests = Requests(f"{RATE}/s", encoder, neighbours.paced(RATE))
        for size, limit in LIMITS.items():
            worker = start(f"products {size}", "night")
            measure(requests, Neighbour(f"products of {size}", worker, neighbours.products(size)), f"ratio <= {limit}")
            worker.close()
        size = max(LIMITS)
        peer = start(f"peer's products {size}", "peer")
        tiny = Requests("a tiny op and its wait", encoder, lambda at, length: ("tiny", at, length))
        measure(tiny, Neighbour(f"an equal's products of {size}", peer, neighbours.products(size)), "value <= 1.5", kept="")
        peer.close()
        if sides.ON_GPU or rows.SMOKE:
            trainer = start("trainer", "night", "trainer.py")
            trainer.send("open", "gpt2")
            trainer.expect("opened", 120)
            training = lambda: Neighbour("GPT-2 training", trainer, neighbours.training)  # noqa: E731
            measure(requests, training(), "ratio <= 1.25")
            server = start("GPT-2", "web")
            server.send("serve", "gpt2")
            server.expect("opened", 120)
            measure(neighbours.at_load("GPT-2 b4x512", server, 0.3), training(), "ratio <= 1.07")
    finally:
        for child in children:
            child.close()


if __name__ == "__main__":
    main()
