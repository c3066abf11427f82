"""A process of the demo: trains a classifier on scikit-learn's digits. Seed, split, initial weights and order of the batches are
fixed, so that two devices train the same thing.

Commands: `go THREADS` trains once from the start and reports the accuracy on the test part. THREADS as for embed.py.
"""

import argparse
import time

import channel

SEED = 0
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()

    began = time.monotonic()
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from torch import nn

    digits = load_digits()
    split = train_test_split(digits.data / 16.0, digits.target, test_size=0.25, random_state=SEED, stratify=digits.target)
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    y_train, y_test = (torch.tensor(part, dtype=torch.int64) for part in split[2:])

    def train(epochs: int) -> tuple[float, int]:
        torch.manual_seed(SEED)
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)).to(arguments.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        order = torch.Generator().manual_seed(SEED)
        steps = 0
        for _ in range(epochs):
            for batch in torch.randperm(len(x_train), generator=order).split(BATCH):
                images, labels = x_train[batch].to(arguments.device), y_train[batch].to(arguments.device)
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
        with torch.no_grad():
            predicted = model(x_test.to(arguments.device)).argmax(1)
            return (predicted == y_test.to(arguments.device)).float().mean().item(), steps

    loaded = time.monotonic()
    train(1)
    channel.emit("ready", load_seconds=loaded - began, warm_seconds=time.monotonic() - loaded)
    while threads := channel.await_go():
        threads.apply()
        began = time.monotonic()
        accuracy, steps = train(arguments.epochs)
        channel.emit("done", seconds=time.monotonic() - began, accuracy=accuracy, steps=steps, test_images=len(x_test))


if __name__ == "__main__":
    main()
