"""Snakes: edges that have a direction
=====================================

A snake of ten cells lies on a grid. The colour of each of its cells says where the next one is: above, below, to the
left or to the right. What is wanted is the number of each cell along the snake, from its head to its tail. No cell
can know its number by itself; its neighbours have to tell it. So there are eleven labels, edges with a direction, and
tables that depend on what is seen and reward other pairs of labels than equal ones: the kind of graph that needs
:class:`perturbmap.Graph`.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import perturbmap as pm
from perturbmap.datasets import SNAKE_DIRECTIONS, load_snakes

snakes = load_snakes()


# %%
# A cell is described by the colours around it, and an edge by its two colours and by whether it runs down or right.
# With ``"directed"``, every feature of an edge has a table of its own, which need not be symmetric.
def describe(picture: np.ndarray) -> pm.Example:
    height, width = picture.shape
    padded = np.pad(picture, 1, constant_values=5)
    around = [padded[r : r + height, c : c + width].ravel() for r in range(3) for c in range(3)]
    edges, colours = pm.grid_edges(height, width), picture.ravel()
    is_down = edges[:, 1] - edges[:, 0] != 1
    pair = 25 * is_down + 5 * colours[edges[:, 0]] + colours[edges[:, 1]]
    return pm.Example(np.hstack([np.eye(6)[cells] for cells in around]), edges, np.eye(50)[pair])


X, X_test = ([describe(picture) for picture in pictures] for pictures in (snakes.X_train, snakes.X_test))
y, y_test = ([labels.ravel() for labels in many] for many in (snakes.y_train, snakes.y_test))


def learner(l2: float) -> pm.StructuredPredictor:
    return pm.StructuredPredictor(
        pm.GraphModel("directed"),
        pm.Graph(),
        pm.LogLikelihood(),
        l2=l2,
        solver=pm.DoubleSGD(30),
        random_state=0,
    )


def share_right(fitted: pm.StructuredPredictor, X: list[pm.Example], y: list[np.ndarray]) -> float:
    """Of the cells of the snakes, not of the many that are empty."""
    predicted, truth = np.concatenate(fitted.predict(X)), np.concatenate(y)
    return float((predicted == truth)[truth > 0].mean())


# %%
# The regularisation is chosen on fifty of the grids to learn from. Thirty passes do: more would make the model
# surer, and hardly ever change a number.
warnings.simplefilter("ignore", ConvergenceWarning)
choices = {l2: share_right(learner(l2).fit(X[:100], y[:100]), X[150:], y[150:]) for l2 in (1e-3, 1e-4)}
l2 = max(choices, key=lambda l2: choices[l2])

began = time.process_time()
tagger = learner(l2).fit(X, y)
seconds = time.process_time() - began
print(f"l2 = {l2:g}; learned in {seconds:.0f} CPU seconds.")
print(f"{100 * share_right(tagger, X_test, y_test):.1f} % of the cells of the test snakes are right.")

# %%
# A classifier that looks at each cell alone, with the same features, has no chance: it knows the colours around the
# cell, and those are the same all along a straight snake.
alone = learner(l2).fit([pm.Example(x.features, []) for x in X], y)
blind = [pm.Example(x.features, []) for x in X_test]
print(f"Cell by cell: {100 * share_right(alone, blind, y_test):.1f} %.")

# %%
# Numbers as they are found, on a grid of the test set. And one of the tables that were learned: an edge down between
# two cells that both say "down" wants the number below to be one more.
n = 3
picture, shape = snakes.X_test[n], snakes.X_test[n].shape
colours = np.array([[0.92, 0.92, 0.92], [0.8, 0.3, 0.3], [0.35, 0.65, 0.35], [0.3, 0.6, 0.8], [0.9, 0.75, 0.2]])
(guessed,), (found,) = alone.predict([blind[n]]), tagger.predict([X_test[n]])
down = SNAKE_DIRECTIONS.index("down")
table = tagger.weights_["edges"][25 + 5 * down + down]

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, title, numbers in zip(axes, ["cell by cell", "with its neighbours"], (guessed, found), strict=False):
    axis.imshow(colours[picture])
    for (r, c), number, truth in zip(np.ndindex(shape), numbers, y_test[n], strict=True):
        if number or truth:
            style = {"color": "black"} if number == truth else {"color": "crimson", "weight": "bold"}
            axis.text(c, r, number, ha="center", va="center", **style)
    axis.set(title=title, xticks=[], yticks=[])
limit = np.abs(table).max()
shown = axes[2].imshow(table, cmap="RdBu", vmin=-limit, vmax=limit)
axes[2].set(title='both say "down"', xlabel="number below", ylabel="number above")
figure.colorbar(shown, ax=axes[2], shrink=0.75)
plt.show()
