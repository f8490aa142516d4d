"""Reading handwritten words
=========================

A letter that is hard to read is easier in a word. We learn to read handwriting twice, once letter by letter and
once with a score for every pair of letters that follow each other, and look at the words in which that makes a
difference.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import perturbmap as pm
from perturbmap.datasets import load_ocr

words = load_ocr()  # 6,877 words in ten folds; the first letter, a capital, is left out
X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in words.X]
train, test = (np.flatnonzero(words.folds == fold) for fold in (0, 1))

# %%
# A bare feature matrix is a chain: its neighbours are joined. The same letters without edges are read one by one.
solver = pm.DoubleSGD(n_passes=20)
alone = [pm.Example(x, edges=np.empty((0, 2), dtype=int)) for x in X]
readers = {
    "letters alone": (pm.StructuredPredictor(structure=pm.Tree(), l2=1e-4, solver=solver, random_state=0), alone),
    "chain": (pm.StructuredPredictor(structure=pm.Chain(), l2=1e-4, solver=solver, random_state=0), X),
}
truth = np.concatenate([words.y[i] for i in test])
predicted, probabilities = {}, {}
for name, (reader, examples) in readers.items():
    reader.fit([examples[i] for i in train], [words.y[i] for i in train])
    predicted[name] = reader.predict([examples[i] for i in test])
    probabilities[name] = reader.predict_marginals([examples[i] for i in test])
    right = np.concatenate(predicted[name]) == truth
    whole = np.mean([np.array_equal(p, words.y[i]) for p, i in zip(predicted[name], test, strict=True)])
    sure = np.concatenate(probabilities[name]).max(axis=1) > 0.9
    print(f"{name:13}  {1 - right.mean():5.1%} of the letters wrong, {whole:.1%} of the words read without a mistake")
    print(f"{'':13}  surer than 90 %: {sure.mean():.0%} of the letters, of which {right[sure].mean():.1%} are right")

# %%
# We show the three words in which the chain puts the most letters right, and the one in which it puts the most
# letters wrong. The number under a letter is its probability.
#
# What to notice: where a letter alone could be anything, its neighbours decide, and the chain is surer of its
# letters, rightly so. But neighbours may also mislead: the last word is read better without them.
mistakes = {
    name: np.array([(p != words.y[i]).sum() for p, i in zip(predicted[name], test, strict=True)]) for name in readers
}
gain = mistakes["letters alone"] - mistakes["chain"]
print(f"The chain has fewer mistakes in {(gain > 0).sum()} words, more in {(gain < 0).sum()}, of {len(test)}.")


def show(ax: Axes, n: int) -> None:
    picture, n_letters = words.picture(test[n]), len(words.y[test[n]])
    ax.imshow(picture, cmap="gray", extent=(0, n_letters, 2, 3.8), aspect="auto")
    for row, name in ((1, "letters alone"), (0, "chain")):
        for site, (letter, q) in enumerate(zip(predicted[name][n], probabilities[name][n], strict=True)):
            p, is_right = q[ord(letter) - ord("a")], letter == words.y[test[n]][site]
            colour = (0.0, 0.45, 0.7) if is_right else (0.84, 0.37, 0.0)
            ax.add_patch(Rectangle((site + 0.04, row + 0.04), 0.92, 0.92, color=(*colour, 0.1 + 0.4 * p), lw=0))
            ax.text(site + 0.5, row + 0.6, letter, ha="center", va="center", fontsize=13, weight="bold")
            ax.text(site + 0.5, row + 0.21, f"{p:.2f}", ha="center", va="center", fontsize=7.5)
    ax.set(xlim=(0, n_letters), ylim=(0, 3.8), xticks=[], yticks=[1.5, 0.5], yticklabels=["alone", "chain"])
    counts = f"{mistakes['letters alone'][n]} letters wrong alone, {mistakes['chain'][n]} in the chain"
    ax.set_title(f"{''.join(words.y[test[n]])}: {counts}", fontsize=10)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


shown = [*np.argsort(-gain, kind="stable")[:3], np.argmin(gain)]
figure, axes = plt.subplots(2, 2, figsize=(10, 5.6), layout="constrained")
for ax, n in zip(axes.flat, shown, strict=True):
    show(ax, n)
figure.suptitle("blue is right, orange is wrong, pale is doubtful", fontsize=10)
plt.show()
