"""A fitted estimator as JSON and arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference import Calibration, LabelPrior
from perturbmap.support.description import from_json, to_json

KEYS = ["parameters", "classes", "n_features_in", "seed", "iteration", "history", "state_of", "shapes"]
ARRAYS = ["coef", "label_prior"]


def to_contents(
    parameters: Mapping[str, Any], fitted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """All that a file must hold: the parameters of an estimator, and the attributes that its fit has set."""
    classes = [to_json(c) for c in fitted["classes_"].tolist()]
    if any(isinstance(c, (list, dict)) for c in classes):
        raise ValueError("classes must be numbers, texts or booleans to be saved.")
    # A generator's state belongs to this process; the fit's seed is kept.
    plain = {k: None if isinstance(v, np.random.Generator) else to_json(v) for k, v in parameters.items()}
    about = {
        "parameters": plain,
        "classes": classes,
        "n_features_in": fitted["n_features_in_"],
        "seed": fitted["seed_"],
        "iteration": fitted["n_iter_"],
        # Without the times: the same fit makes the same file.
        "history": [{k: v for k, v in entry.items() if k != "seconds"} for entry in fitted["history_"]],
        "state_of": fitted["_state_of"],
        "shapes": {name: list(block.shape) for name, block in fitted["weights_"].items()},
    }
    arrays = {"coef": fitted["coef_"], "label_prior": fitted["label_prior_"].to_array()}
    arrays.update({f"state_{name}": array for name, array in fitted["_state"].items()})
    for name in ("calibration", "decoding_calibration"):
        if fitted[f"{name}_"] is not None:
            arrays[name] = fitted[f"{name}_"].to_array()
    return about, arrays


def read_contents(
    about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], parts: Sequence[type]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of an estimator, and the attributes that its fit had set; see `to_contents`."""
    weights, first = {}, 0
    for name, shape in about["shapes"].items():
        size = math.prod(shape)
        weights[name] = arrays["coef"][first : first + size].reshape(shape)
        first += size
    if first != len(arrays["coef"]):
        raise ValueError(f"the file is damaged: it has {len(arrays['coef'])} weights in shapes of {first}.")
    fitted = {
        "coef_": arrays["coef"],
        "weights_": weights,
        "label_prior_": LabelPrior(*arrays["label_prior"]),
        "calibration_": Calibration.from_array(arrays.get("calibration")),
        "decoding_calibration_": Calibration.from_array(arrays.get("decoding_calibration")),
        "classes_": as_array(about["classes"]),
        "n_features_in_": about["n_features_in"],
        "n_iter_": about["iteration"],
        "seed_": about["seed"],
        "history_": about["history"],
        "_state_of": about["state_of"],
        "_state": {k.removeprefix("state_"): array for k, array in arrays.items() if k.startswith("state_")},
    }
    return {k: from_json(v, parts) for k, v in about["parameters"].items()}, fitted


def as_array(classes: Sequence[Hashable]) -> NDArray[Any]:
    """The values of labels as an array: of objects, unless all are texts, or numbers of one type."""
    values = np.empty(len(classes), dtype=object)
    values[:] = classes
    is_plain = len({type(c) for c in classes}) == 1 and isinstance(classes[0], (str, bool, int, float))
    return np.asarray(classes) if is_plain else values
