"""Matching points, with doubt
===========================

Some points are seen again, turned and jittered, among points that are new. Which is which? A matching gives every
point a partner of its own. What makes two points alike is learned from solved puzzles, and every match has its
probability.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import ConnectionPatch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import perturbmap as pm

rng, n_points, n_new = np.random.default_rng(0), 12, 4
mean, spread = [0.75, 0.2, 0.33, 0.44, 0.53, 0, 0], [0.3, 0.1, 0.13, 0.15, 0.16, 1, 1]


# %%
# A point is described by its distances from the centre and from its four nearest neighbours, which a turn does not
# change, and by two colours, of which the second is mostly noise when it is seen again.
def describe(points: np.ndarray, colours: np.ndarray) -> np.ndarray:
    nearest = np.sort(cdist(points, points), axis=1)[:, 1:5]
    centre = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return np.asarray((np.column_stack([centre, nearest, colours]) - mean) / spread)


def puzzle() -> tuple[np.ndarray, ...]:
    """Points before and after, their descriptions, and the partner of each."""
    before, colours, turn = (
        rng.uniform(-1, 1, (n_points, 2)),
        rng.normal(size=(n_points, 2)),
        rng.uniform(0, 2 * np.pi),
    )
    turned = before @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    after = np.concatenate([turned + rng.normal(0, 0.02, before.shape), rng.uniform(-1, 1, (n_new, 2))])
    again = np.concatenate([colours + rng.normal(size=colours.shape) * [0.5, 2], rng.normal(size=(n_new, 2))])
    order = rng.permutation(n_points + n_new)
    described = describe(before, colours), describe(after[order], again[order])
    return before, after[order], *described, np.argsort(order)[:n_points]


# %%
# ``MatchingModel`` scores a match by x' W z. With a one beside x and squares beside z, W may be any weighted squared
# distance. We compare with the plain distance, and with the learned scores where no partner is taken from anyone.
def example(a: np.ndarray, b: np.ndarray) -> pm.Example:
    return pm.Example(np.insert(a, 0, 1, axis=1), label_features=np.hstack([b, b**2]))


puzzles = [puzzle() for _ in range(400)]
X, y = [example(a, b) for _, _, a, b, _ in puzzles], [partners for *_, partners in puzzles]
matcher = pm.StructuredPredictor(
    pm.MatchingModel(), pm.Matching(), l2=1e-3, classes=range(n_points + n_new), random_state=0
).fit(X[:200], y[:200])
W = matcher.coef_.reshape(8, 14)
matched, truth = matcher.predict(X[200:]), np.concatenate(y[200:])
plain = [linear_sum_assignment(cdist(a, b, "sqeuclidean"))[1] for *_, a, b, _ in puzzles[200:]]
single = [(x.features @ W @ x.label_features.T).argmax(axis=1) for x in X[200:]]
for name, partners in (("plain distance", plain), ("learned, each alone", single), ("learned, matched", matched)):
    print(f"{name:20}{np.mean(np.concatenate(partners) == truth):.1%} of the points have the right partner")

# %%
# What to notice: the learned similarity is worth twenty points, and so is the rule that no two points share a
# partner. The probabilities tell good matches from bad ones; if anything, they are too modest.
q = np.concatenate(matcher.predict_marginals(X[200:]))
p = q[np.arange(len(q)), np.concatenate(matched)]
right = np.concatenate(matched) == truth
bins = np.digitize(p, [0.2, 0.4, 0.6, 0.8])
said, borne_out = ([values[bins == b].mean() for b in range(5)] for values in (p, right))
print("said     ", " ".join(f"{s:5.0%}" for s in said), "\nborne out", " ".join(f"{s:5.0%}" for s in borne_out))

figure, (left, middle, last) = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
shown, colours = 1, plt.get_cmap("viridis_r")
before, after, *_ = puzzles[200 + shown]
for ax, points, title in ((left, before, "before"), (middle, after, "after (dotted: a wrong match)")):
    ax.scatter(*points.T, s=30, color="black", zorder=3)
    ax.set(title=title, xticks=[], yticks=[], xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
for n, m in enumerate(matched[shown], start=shown * n_points):
    style = {"color": colours(p[n]), "lw": 2, "ls": "-" if right[n] else ":"}
    figure.add_artist(ConnectionPatch(before[n % n_points], after[m], "data", axesA=left, axesB=middle, **style))
figure.colorbar(
    plt.cm.ScalarMappable(cmap=colours), ax=[left, middle], fraction=0.03, label="probability of the match"
)
last.plot([0, 1], [0, 1], color="0.7")
last.plot(said, borne_out, "o-", color="#0072b2")
last.set(title="all 2,400 matches", xlabel="probability of the match", ylabel="share that is right", aspect="equal")
plt.show()
