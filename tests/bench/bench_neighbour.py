"""Requests beside a neighbour that fills the CPU device: an encoder at 30% load, of class interactive, beside training of class batch; a tiny op and its wait
beside products of 4096 with the same class and weight. All share the processor with the device.
"""

import os
import sys

os.environ["XPUD_BENCH_PLAIN"] = "cpu"
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))

import neighbours  # noqa: E402
import rows  # noqa: E402
import workers  # noqa: E402
from neighbours import Neighbour, Requests  # noqa: E402

SIZE = 512 if rows.SMOKE else 4096


def serve_beside_training(web: dict[str, str], night: dict[str, str]) -> None:
    server, trainer = workers.start("encoder", "xpud", web), workers.start("trainer", "xpud", night, "trainer.py")
    try:
        server.expect("ready", 60)
        server.send("open", "float32", 1, 16)
        server.expect("opened", 60)
        trainer.expect("ready", 60)
        trainer.send("open", "small")
        trainer.expect("opened", 120)
        requests, training = neighbours.at_load("MiniLM 1 x 16", server, 0.3), Neighbour("training", trainer, neighbours.training)
        neighbours.measure(requests, training)
        neighbours.emit_times(requests, training, "")
        neighbours.emit_kept(requests, training, "")
    finally:
        server.close()
        trainer.close()


def wait_beside_products(one: dict[str, str], other: dict[str, str]) -> None:
    asking, multiplying = workers.start("tiny", "xpud", one), workers.start("products", "xpud", other)
    try:
        asking.expect("ready", 60)
        multiplying.expect("ready", 60)
        tiny = Requests("a tiny op and its wait", asking, lambda at, length: ("tiny", at, length))
        equal = Neighbour(f"an equal's products of {SIZE}", multiplying, neighbours.products(SIZE, "float32"))
        neighbours.measure(tiny, equal)
        neighbours.emit_times(tiny, equal, "value <= 5")
    finally:
        asking.close()
        multiplying.close()


def main() -> None:
    serve_beside_training(neighbours.door("web", "interactive"), neighbours.door("night", "batch"))
    wait_beside_products(neighbours.door("one", "interactive"), neighbours.door("other", "interactive"))


if __name__ == "__main__":
    main()
