"""PyTorch programs on a device whose executor process dies while they run."""

import json
import os
import signal
import time
import unittest

from harness import DaemonTest, wait_until

# Prints "right" after each round, "wrong" if a round's result differs from the first one's, or the error.
INFERENCE = """
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(2))).eval().to("xpud")
x = torch.randn(2, 16, 64)
with torch.no_grad():
    first = model(x.to("xpud")).cpu()
    say("ready")
    for line in sys.stdin:
        say("right" if torch.equal(model(x.to("xpud")).cpu(), first) else "wrong")
"""

# Trains until an executor's loss hits an in-place update, or to the end; then prints the outcome.
TRAINING = """
torch.manual_seed(0)
def train(device, steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 32).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x = torch.ones(8, 32, device=device)
    for step in range(steps):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "xpud" and step % 10 == 0: say("step", loss.item())
    return loss.item()
expected = train("cpu", 400)
try:
    say("right" if abs(train("xpud", 400) - expected) < 1e-4 else "wrong")
except RuntimeError as error:
    say("error", error)
"""


class Executor(DaemonTest):
    FLAGS = ("--device", "cpu", "--executor", "process")

    def device(self) -> dict:
        return self.daemon.status()["devices"][0]

    def kill_executor(self) -> None:
        wait_until(lambda: "executor_pid" in self.device(), 10)
        os.kill(self.device()["executor_pid"], signal.SIGKILL)

    def test_inference_goes_on_when_the_executor_is_killed(self):
        client = self.client(INFERENCE)
        self.assertEqual(client.hear(), "ready")
        for lost in range(1, 4):
            client.tell("\n" * 20)
            self.kill_executor()
            self.assertEqual(set(client.hear() for _ in range(21)), {"right"})
            wait_until(lambda lost=lost: self.device()["executors_replaced"] == lost, 10)
        events = [event for event in json.loads(self.daemon.ask("events", "-o", "json"))["events"] if "executor" in event["kind"]]
        self.assertEqual([event["kind"] for event in events], ["executor_lost", "executor_replaced"] * 3)
        self.assertTrue(all(event["text"] for event in events[::2]), events)
        for replaced, lost in zip(events[1::2], events[2::2]):
            self.assertEqual(replaced["pid"], lost["pid"])
        self.assertEqual(events[-1]["pid"], self.device()["executor_pid"])

    def test_training_is_right_or_an_error_when_the_executor_is_killed(self):
        client = self.client(TRAINING)
        self.assertTrue(client.hear().startswith("step"))
        time.sleep(0.05)
        self.kill_executor()
        while (line := client.hear()).startswith("step"):
            pass
        self.assertTrue(line == "right" or "executor was lost" in line, line)


if __name__ == "__main__":
    unittest.main()
