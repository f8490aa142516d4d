"""A fitted estimator as JSON and arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.labels import find_classes
from perturbmap.estimator.token_features import TokenFeatures
from perturbmap.inference import Calibration, LabelPrior
from perturbmap.learning.setting import Setting
from perturbmap.learning.taking_up import kept_count, kept_floats, kept_history, kept_seed
from perturbmap.noise import seed_of
from perturbmap.potentials import Floats
from perturbmap.support.damage import shown
from perturbmap.support.description import from_json, to_json

KEYS = ["parameters", "classes", "n_features_in", "seed", "iteration", "history", "state_of", "shapes"]
ARRAYS = ["coef", "label_prior"]
# More labels than any structure can tell apart, and more axes than an array may have.
_MOST_CLASSES, _MOST_AXES = 10**6, 32


def to_contents(
    parameters: Mapping[str, Any], fitted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """All that a file must hold: the parameters of an estimator, and the attributes that its fit has set.

    ValueError where `read_contents` would refuse them: what cannot be loaded is not saved.
    """
    check_parameters(parameters)
    kept_floats("coef_", fitted["coef_"])
    classes = [to_json(c) for c in fitted["classes_"].tolist()]
    if any(isinstance(c, (list, dict)) for c in classes):
        raise ValueError("classes must be numbers, texts or booleans to be saved.")
    # A generator's state belongs to this process; the fit's seed is kept.
    plain = {k: None if isinstance(v, np.random.Generator) else to_json(v) for k, v in parameters.items()}
    about = {
        "parameters": plain,
        "classes": classes,
        "n_features_in": fitted["n_features_in_"],
        "feature_names": None if fitted["features_"] is None else list(fitted["features_"].vocabulary_),
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
    """The parameters of an estimator, and the attributes that its fit had set; see `to_contents`.

    ValueError where they are not those of any fit: whatever uses them may rely on them.
    """
    missing = [key for key in KEYS if key not in about] + [key for key in ARRAYS if key not in arrays]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}.")
    parameters = about["parameters"]
    if not isinstance(parameters, dict):
        raise ValueError(f"its parameters are {shown(parameters)}.")
    coef = kept_floats("coef", arrays["coef"], (arrays["coef"].size,))
    classes = _classes(about["classes"])
    k = len(classes)
    fitted: dict[str, Any] = {
        "coef_": coef,
        "weights_": _blocks(coef, about["shapes"]),
        "label_prior_": LabelPrior(*kept_floats("label_prior", arrays["label_prior"], (2, k))),
        "classes_": as_array(classes),
        "n_features_in_": kept_count("n_features_in", about["n_features_in"]),
        "n_iter_": kept_count("iteration", about["iteration"]),
        "seed_": kept_seed(about["seed"]),
        "history_": kept_history(about["history"]),
        "_state_of": str(about["state_of"]),
        "_state": {name.removeprefix("state_"): a for name, a in arrays.items() if name.startswith("state_")},
    }
    for name in ("calibration", "decoding_calibration"):
        values = None if name not in arrays else kept_floats(name, arrays[name], (1 + k,))
        if values is not None and not values[0] > 0:
            raise ValueError(f"the scale of its {name} must be above zero, but is {values[0]}.")
        fitted[f"{name}_"] = Calibration.from_array(values)
    if (arrays["label_prior"] < 0).any():
        raise ValueError("its label_prior must not be negative.")
    made = {name: from_json(value, parts) for name, value in parameters.items()}
    check_features(made.get("features"))
    fitted["features_"] = _features(made.get("features"), about.get("feature_names"), fitted["n_features_in_"])
    return made, fitted


def check_features(features: Any) -> None:
    """Raises TypeError unless these are features of tokens, or none."""
    if features is not None and not isinstance(features, TokenFeatures):
        raise TypeError(f"features must be of type TokenFeatures, or None, but is {features!r}.")


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raises ValueError where the parameters of an estimator make no sense, or do not go together."""
    classes, seed = parameters["classes"], parameters["random_state"]
    try:
        Setting.resolve(dict(parameters)).check()
        check_features(parameters["features"])
        if not isinstance(seed, np.random.Generator) and seed is not None:
            seed_of(seed, "random_state")
        if classes is not None and len(classes) > _MOST_CLASSES:
            raise ValueError(f"classes must be at most {_MOST_CLASSES}, but are {len(classes)}.")
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _classes(values: Any) -> list[Hashable]:
    """The values of the labels, each once."""
    if not isinstance(values, list) or not values or not all(isinstance(c, (str, bool, int, float)) for c in values):
        raise ValueError(f"its classes must be numbers, texts or booleans, but are {shown(values)}.")
    return find_classes([], values)


def _features(features: TokenFeatures | None, names: Any, n_features: int) -> TokenFeatures | None:
    """The features of tokens with the names of the fit, one for each column; None where it had matrices."""
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"its feature_names must be texts, but are {shown(names)}.")
    if len(set(names)) != n_features or len(names) != n_features:
        raise ValueError(f"it has {n_features} features, but {len(set(names))} different feature_names.")
    return (features or TokenFeatures()).with_names(names)


def _blocks(coef: Floats, shapes: Any) -> dict[str, Floats]:
    """The weights by name, in their shapes."""
    if not isinstance(shapes, dict):
        raise ValueError(f"the shapes of its weights are {shown(shapes)}.")
    weights, first = {}, 0
    for name, shape in shapes.items():
        if not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise ValueError(f"the shape of its weights {shown(name)} is {shown(shape)}.")
        size = math.prod(kept_count(f"the shape of its weights {shown(name)}", n) for n in shape)
        if first + size > len(coef):
            break
        weights[name] = coef[first : first + size].reshape(shape)
        first += size
    if first != len(coef) or len(weights) < len(shapes):
        raise ValueError(f"it has {len(coef)} weights, which are not as many as their shapes {shown(shapes)} have.")
    return weights


def as_array(classes: Sequence[Hashable]) -> NDArray[Any]:
    """The values of labels as an array: of objects, unless all are texts, or numbers of one type."""
    values = np.empty(len(classes), dtype=object)
    values[:] = classes
    is_plain = len({type(c) for c in classes}) == 1 and isinstance(classes[0], (str, bool, int, float))
    return np.asarray(classes) if is_plain else values
