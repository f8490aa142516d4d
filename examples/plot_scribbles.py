"""From a few strokes to a mask
============================

A user draws some strokes on a cup and some on the table. A graph over superpixels learns from the strokes alone, by
partial labels (-1 wherever nothing was drawn), and labels the rest, with a probability for each.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.color import rgb2lab
from skimage.data import coffee
from skimage.draw import ellipse, line
from skimage.segmentation import slic
from sklearn.kernel_approximation import Nystroem

import perturbmap as pm
from perturbmap.images import Superpixels

image = coffee()
regions = Superpixels.from_map(slic(image, n_segments=500, compactness=15, start_label=0))
lab = rgb2lab(image).reshape(-1, 3).T
colours = np.stack([np.bincount(regions.map.ravel(), channel) / regions.areas for channel in lab], axis=1)

# %%
# The strokes run from (x, y) to (x, y). Regions under a stroke are known: 1 for the cup with its saucer and spoon,
# 0 for the table.
cup = [(190, 80, 260, 190), (260, 150, 340, 160), (110, 180, 140, 300), (200, 340, 330, 360)]
cup += [(430, 180, 450, 260), (240, 250, 300, 320), (350, 270, 390, 290), (270, 40, 340, 60)]
table = [(20, 60, 60, 40), (150, 40, 40, 160), (30, 250, 60, 380)]
table += [(490, 60, 570, 200), (520, 300, 560, 380), (110, 350, 140, 390)]
y = np.full(len(regions), -1)
for label, strokes in ((0, table), (1, cup)):
    for x0, y0, x1, y1 in strokes:
        y[regions.map[line(y0, x0, y1, x1)]] = label

# %%
# Features are similarities to 60 colours of the image. Neighbours are joined by an edge that has two features: a
# constant, and how similar their colours are. Without edges, every region would stand for itself.
features = Nystroem(gamma=2e-3, n_components=60, random_state=0).fit_transform(colours)
contrast = np.linalg.norm(colours[regions.edges[:, 0]] - colours[regions.edges[:, 1]], axis=1)
similarity = np.stack([np.ones_like(contrast), np.exp(-contrast / 10)], axis=1)
examples = {
    "colour alone": pm.Example(features, np.empty((0, 2), dtype=int), np.empty((0, 2))),
    "colour and neighbours": pm.Example(features, regions.edges, similarity),
}

# %%
# To measure by, the cup is outlined by hand: it is two ellipses, but for the handle of the spoon. In doubt is what
# has a probability between 0.1 and 0.9.
truth = np.zeros(image.shape[:2], dtype=bool)
for outline in ((222, 278, 165, 201), (112, 290, 95, 117)):
    truth[ellipse(*outline)] = True
print(f"{np.mean(y >= 0):.0%} of {len(y)} regions are under a stroke")
probability = {}
for name, example in examples.items():
    cutter = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), l2=1e-2, random_state=0).fit([example], [y])
    probability[name] = q = cutter.predict_marginals([example], given=[y])[0][regions.map, 1]
    found = q > 0.5
    overlap, doubt = (found & truth).sum() / (found | truth).sum(), np.mean((q > 0.1) & (q < 0.9))
    print(f"{name:22} {overlap:.0%} overlap with the outline, {doubt:.0%} of the image in doubt")

# %%
# What to notice: by colour alone, much of the inside of the cup passes for table. With neighbours, little remains in
# doubt: the handle of the spoon, a bit of the saucer's rim. There a user would draw the next stroke.
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
axes[0, 0].imshow(image)
for strokes, colour in ((table, "#56b4e9"), (cup, "#f0e442")):
    for x0, y0, x1, y1 in strokes:
        axes[0, 0].plot([x0, x1], [y0, y1], color=colour, lw=4, solid_capstyle="round")
axes[0, 0].set_title("the strokes: yellow on the cup, blue on the table")
axes[0, 1].imshow(np.where(found[..., None], image, 255))
axes[0, 1].set_title("what is cut out")
for ax, (name, q) in zip(axes[1], probability.items(), strict=True):
    picture = ax.imshow(q, cmap="magma", vmin=0, vmax=1)
    ax.set_title(f"probability: {name}")
figure.colorbar(picture, ax=axes[1], fraction=0.03, pad=0.01)
for ax in axes.flat:
    ax.set_axis_off()
plt.show()
