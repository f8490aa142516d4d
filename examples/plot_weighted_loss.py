"""Learning and reading for a weighted loss
========================================

Rust covers four per cent of a plate, and to miss a spot of it costs more than a false alarm. Should the weights of
the loss be in the learning, in the reading of a plain model, or in both?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import perturbmap as pm

rng = np.random.default_rng(0)
shape = (12, 16)
edges = pm.grid_edges(*shape)


# %%
# A plate is a grid of spots; at each, a sensor gives one noisy number.
def plate() -> tuple[pm.Example, np.ndarray]:
    field = gaussian_filter(rng.normal(size=shape), 1.5)
    rust = (field > 1.9 * field.std()).ravel()
    return pm.Example((rust + rng.normal(0, 0.6, rust.size))[:, None], edges), rust.astype(int)


X, y = zip(*(plate() for _ in range(160)), strict=True)
train, test = slice(0, 60), slice(60, 160)
print(f"{np.mean(y[train]):.1%} of the spots are rusty")


# %%
# One model is learned without weights and read in two ways: by its best labelling, and by the labelling of least
# expected loss. Another is learned with the weights, anew for each price of a miss, and read by its best labelling.
def learn(loss: pm.TaskLoss) -> pm.StructuredPredictor:
    solver = pm.DoubleSGD(n_passes=1, batch_size=4, min_steps=200)
    objective = pm.MarginalLogLikelihood(loss)
    return pm.StructuredPredictor(
        pm.GraphModel(), pm.BinaryGraph(), objective, l2=1e-3, solver=solver, n_perturbations=30, random_state=0
    ).fit(X[train], y[train])


prices, plain = (1, 2, 4, 8, 16, 32), learn(pm.Hamming())
names = ["plain, best labelling", "plain, least expected loss", "learned with the weights, best labelling"]
costs, truth, found = np.empty((3, len(prices))), np.array(y[test]), []
for n, price in enumerate(prices):
    loss = pm.WeightedHamming([1, price])
    ways = [(plain, pm.Decoding.MAP), (plain, pm.Decoding.LOSS_AWARE), (learn(loss), pm.Decoding.MAP)]
    for way, (model, decoding) in enumerate(ways):
        model.set_params(task_loss=loss, decoding=decoding)
        costs[way, n] = model.losses(X[test], y[test]).mean() / (price * truth.sum(axis=1).mean())
        if price == 16:
            found.append(np.array(model.predict(X[test])))
            caught, alarms = found[way][truth == 1].mean(), found[way][truth == 0].mean()
            print(f"{names[way]:41} {caught:.0%} of the rust, {alarms:.1%} false alarms, cost {costs[way, n]:.2f}")

# %%
# What to notice: at equal prices the three hardly differ. As the price of a miss rises, the best labelling of the
# plain model goes on missing half of the rust, while the same model, read with the loss in mind, is as good as one
# that was learned for that very price. Probabilities that are learned once serve every loss.
figure, axes = plt.subplot_mosaic("x02;x13", figsize=(10, 3.8), width_ratios=[1.5, 1, 1], layout="constrained")
for name, values, colour, mark in zip(names, costs, ("#d55e00", "#0072b2", "#009e73"), "os^", strict=True):
    axes["x"].plot(prices, values, f"{mark}-", color=colour, label=name)
axes["x"].set(
    xscale="log", ylim=(0, None), xlabel="price of a miss, in false alarms", ylabel="cost / cost of no alarm"
)
axes["x"].set_xticks(prices, [str(price) for price in prices])
axes["x"].minorticks_off()
axes["x"].legend(loc="lower left", fontsize=9)
shown = np.flatnonzero(truth.sum(axis=1) >= 12)[0]
pictures = [X[test][shown].features, truth[shown], found[0][shown], found[1][shown]]
titles = ["what the sensor says", "rust", "plain, best labelling", "plain, read for price 16"]
for n, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
    axes[str(n)].imshow(picture.reshape(shape), cmap="cividis" if n == 0 else "gray_r")
    axes[str(n)].set_title(title, fontsize=10)
    axes[str(n)].set(xticks=[], yticks=[])
plt.show()
