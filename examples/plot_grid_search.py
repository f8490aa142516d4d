"""Choosing the penalty by cross-validation
========================================

A ``StructuredPredictor`` is a scikit-learn estimator, so that ``GridSearchCV`` can choose its l2. It chooses inside
the training data; the test data are looked at once, when all is chosen.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

import perturbmap as pm
from perturbmap.datasets import load_ocr

words = load_ocr()
X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in words.X]
train = np.random.default_rng(0).choice(np.flatnonzero(words.folds == 0), 120, replace=False)
test = np.flatnonzero(words.folds != 0)
X_train, y_train = [X[i] for i in train], [words.y[i] for i in train]
X_test, y_test = [X[i] for i in test], [words.y[i] for i in test]

# %%
# A conditional random field for handwritten words, judged by wrong letters, not by wrong words. A few words do not
# show all letters: we name them. Five folds are shuffled, since words of the data set lie sorted.
reader = pm.StructuredPredictor(
    objective=pm.ExactLogLikelihood(),
    solver=pm.LBFGS(tolerance=0.1),
    task_loss=pm.Hamming(),
    classes="abcdefghijklmnopqrstuvwxyz",
)
folds = KFold(5, shuffle=True, random_state=0)
search = GridSearchCV(reader, {"l2": np.logspace(-5, -2, 5)}, cv=folds).fit(X_train, y_train)

# %%
# The bars are standard errors over the five folds.
l2s = search.cv_results_["param_l2"].astype(float)
errors = 100 * (1 - np.array([search.cv_results_[f"split{fold}_test_score"] for fold in range(5)]))
mean, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / 5**0.5
above = errors - errors[:, [search.best_index_]]
for n, l2 in enumerate(l2s):
    more = f"{above[:, n].mean():.1f} +- {above[:, n].std(ddof=1) / 5**0.5:.1f}"
    print(f"l2 = {l2:.1e}: {mean[n]:.1f} +- {error[n]:.1f} % of the letters of a word wrong, {more} above the best")

# %%
# The search has fitted all training words again, with the l2 it chose. Now, and only now, the test words.
best, test_error = search.best_params_["l2"], 100 * (1 - search.score(X_test, y_test))
print(f"chosen: l2 = {best:.1e}; in {len(test):,} test words, {test_error:.1f} % of the letters of a word wrong")

# %%
# What to notice: the valley is flat, and over a factor of thirty no l2 can be told from the best. Most of a bar is
# common to all l2, since some folds are harder than others (the thin lines): the differences from the best, printed
# above, are known better than the errors. The test error lies somewhat below the curve: all training words teach more
# than four fifths of them.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(l2s, errors.T, color="0.8", lw=1)
ax.errorbar(
    l2s, mean, error, fmt="o-", capsize=4, color="#0072b2", label="held out in cross-validation, mean of five folds"
)
ax.plot(best, test_error, "*", ms=16, color="#d55e00", ls="", label="test words, at the chosen l2")
ax.set(xscale="log", xlabel="l2", ylabel="wrong letters in a word, mean, %")
ax.legend()
plt.show()
