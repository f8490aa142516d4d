"""A network with a chain on top
=============================

A small convolutional network gives each letter of a word a score; a chain on top, one table of letter pairs, makes
words of them. Both are learned end to end by the marginal likelihood, through `perturbmap.nn`. Beside it, the same
network learned letter by letter, by cross-entropy.

It needs ``pip install "perturbmap[torch]"`` and some minutes, so it is not run for this page. It trains on nine folds
and tests on the tenth (the protocol "large", fold 0):

.. code-block:: console

    $ python examples/ocr_network.py
"""

import argparse
import time

import numpy as np
import torch
from torch import Tensor, nn

import perturbmap as pm
from perturbmap.nn import BestLabelling, StructuredLoss


class Reader(nn.Module):
    """Scores of the 26 letters for pictures of 16 x 8 pixels, and a table of letter pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Sequential(
            nn.Unflatten(-1, (1, 16, 8)),
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(64 * 8 * 4, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 26),
        )
        self.pairs = nn.Parameter(torch.zeros(26, 26))

    def forward(self, words: list[Tensor]) -> list[Tensor]:
        """Unary potentials, one tensor for each word."""
        scores: Tensor = self.letters(torch.cat(words))
        return list(scores.split([len(word) for word in words]))


def learn(words: list[Tensor], labels: list[Tensor], with_chain: bool, n_passes: int) -> Reader:
    """Adam with a step that rises and falls, sixteen words per step."""
    torch.manual_seed(0)
    reader, chain_loss, letter_loss = Reader(), StructuredLoss(), nn.CrossEntropyLoss(reduction="sum")
    rng, n_batches = np.random.default_rng(0), len(words) // 16
    batches = [b for _ in range(n_passes) for b in np.array_split(rng.permutation(len(words)), n_batches)]
    optimiser = torch.optim.AdamW(reader.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=len(batches))
    for batch in batches:
        unary, y = reader([words[i] for i in batch]), [labels[i] for i in batch]
        if with_chain:
            loss = chain_loss(unary, y, reader.pairs)
        else:
            loss = letter_loss(torch.cat(unary), torch.cat(y)) / len(batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return reader.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="Handwritten words by a network, with and without a chain on top.")
    parser.add_argument("--passes", type=int, default=8, help="over the training words (default: 8)")
    parser.add_argument("--words", type=int, help="train on so many words only")
    parser.add_argument("--validate", action="store_true", help="test on fold 1, left out of training, not on fold 0")
    options = parser.parse_args()

    X, y, folds = pm.datasets.load_ocr()
    words = [torch.tensor(x, dtype=torch.float32) for x in X]
    labels = [torch.tensor([ord(letter) - ord("a") for letter in word]) for word in y]
    fold = 1 if options.validate else 0
    train, test = np.flatnonzero(folds > fold)[: options.words], np.flatnonzero(folds == fold)
    truth = torch.cat([labels[i] for i in test])
    print(f"{len(train)} words to learn from, {len(test)} to read", flush=True)
    for name, with_chain in (("letter by letter", False), ("with the chain", True)):
        start = time.perf_counter()
        reader = learn([words[i] for i in train], [labels[i] for i in train], with_chain, options.passes)
        with torch.no_grad():
            read = BestLabelling()(reader([words[i] for i in test]), reader.pairs)
        error = (torch.cat(read) != truth).double().mean()
        print(f"{name:18} {error:6.1%} of the letters wrong, {time.perf_counter() - start:4.0f} s", flush=True)


if __name__ == "__main__":
    main()
