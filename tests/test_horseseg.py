"""HorseSeg's files, written here in their two layouts and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perturbmap import BalancedHamming, BinaryGraph, DoubleSGD, GraphModel, MarginalLogLikelihood, StructuredPredictor
from perturbmap.datasets import load_horseseg_features, load_horseseg_mat

h5py = pytest.importorskip("h5py", reason="no h5py: HorseSeg's files cannot be written")


def images(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        d = int(rng.integers(4, 9))
        edges = np.array([[a, a + 1] for a in range(d - 1)] + [[0, d - 1]])
        labels = rng.integers(0, 2, d)
        features = (rng.normal(size=(d, 1969)) + 2 * labels[:, None] - 1).astype(np.float32)
        made.append(
            {
                "features": features,
                "edges": edges,
                "edge_features": rng.random((len(edges), 100)).astype(np.float32),
                "labels": labels,
                "sizes": rng.integers(50, 900, d).astype(np.float64),
                "name": f"2008_{i:06d}.jpg",
            }
        )
    return made


def write_mat(path: Path, parts: dict[str, list[dict[str, Any]]]) -> None:
    """As MATLAB 7.3 does: axes reversed, cells as references, characters as numbers."""
    with h5py.File(path, "w") as file:
        hidden = file.create_group("#refs#")

        def cell(name: str, structs: list[dict[str, Any]]) -> None:
            references = np.empty((len(structs), 1), dtype=h5py.ref_dtype)
            for n, fields in enumerate(structs):
                group = hidden.create_group(f"{name}{n}")
                for field, value in fields.items():
                    group[field] = value
                references[n, 0] = group.ref
            file.create_dataset(name, data=references, dtype=h5py.ref_dtype)

        for part, some in parts.items():
            cell(
                f"patterns_{part}",
                [
                    {
                        "num_nodes": np.array([[float(len(x["features"]))]]),
                        "num_states": np.array([[2.0]]),
                        "num_edges": np.array([[float(len(x["edges"]))]]),
                        "edge_structure": x["edges"].astype(np.float64),  # 2 x E in MATLAB
                        "features": x["features"],  # 1969 x D
                        "features_pairwise": x["edge_features"],  # 100 x E
                        "image_file": np.array([[ord(c)] for c in x["name"]], dtype=np.uint16),
                    }
                    for x in some
                ],
            )
            cell(
                f"labels_{part}",
                [{"labels": x["labels"][None].astype(np.float64), "superpixel_size": x["sizes"][None]} for x in some],
            )


def write_features(path: Path, some: list[dict[str, Any]]) -> None:
    with h5py.File(path, "w") as file:
        for n, x in enumerate(some):
            file[f"superpixel_count_{n:06d}"] = len(x["features"])
            file[f"edge_count_{n:06d}"] = len(x["edges"])
            file[f"edge_structure_{n:06d}"] = x["edges"].T if n % 2 else x["edges"]
            file[f"features_{n:06d}"] = x["features"]
            file[f"labels_{n:06d}"] = x["labels"]
            file[f"image_name_{n:06d}"] = x["name"]


def test_a_mat_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Both parts; features stay float32; what is read can be learned from."""
    made = images(8)
    path = tmp_path / "horseSeg_small.mat"
    write_mat(path, {"train": made[:6], "test": made[6:]})
    for part, some in (("train", made[:6]), ("test", made[6:])):
        X, y, names = load_horseseg_mat(path, part)
        assert names == [x["name"] for x in some]
        for example, labels, x in zip(X, y, some, strict=True):
            np.testing.assert_array_equal(example.features, x["features"])
            assert example.features.dtype == np.float32
            np.testing.assert_array_equal(example.edges, x["edges"])
            np.testing.assert_array_equal(example.edge_features, x["edge_features"])
            np.testing.assert_array_equal(example.sizes, x["sizes"])
            np.testing.assert_array_equal(labels, x["labels"])
    X, y, _ = load_horseseg_mat(path)
    est = StructuredPredictor(
        GraphModel(),
        BinaryGraph(),
        MarginalLogLikelihood(BalancedHamming()),
        l2=1e-2,
        solver=DoubleSGD(20),
        random_state=0,
    )
    assert est.fit(X, y).score(*load_horseseg_mat(path, "test")[:2]) > 0.9


def test_the_original_release_is_read_too(tmp_path: Path) -> None:
    """Edges either way round; labels other than 0 and 1 are unknown."""
    made = images(4)
    made[2]["labels"] = np.where(np.arange(len(made[2]["labels"])) == 1, 255, made[2]["labels"])
    write_features(tmp_path / "horse-features.bin", made)
    X, y, names = load_horseseg_features(tmp_path / "horse-features.bin")
    assert names == [x["name"] for x in made]
    for example, x in zip(X, made, strict=True):
        np.testing.assert_array_equal(example.features, x["features"])
        np.testing.assert_array_equal(example.edges, x["edges"])
    assert y[2][1] == -1
    np.testing.assert_array_equal(y[0], made[0]["labels"])


def test_files_that_are_something_else_are_named(tmp_path: Path) -> None:
    """Missing, not HDF5, without the variable, truncated, with a field missing or of another length."""
    made = images(3)
    path = tmp_path / "horses.mat"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_horseseg_mat(path)
    path.write_bytes(b"not a file of that kind")
    for load in (load_horseseg_mat, load_horseseg_features):
        with pytest.raises(ValueError, match="is not an HDF5 file"):
            load(path)
    write_mat(path, {"train": made})
    with pytest.raises(ValueError, match=r"has no variable patterns_test; it has .*patterns_train"):
        load_horseseg_mat(path, "test")
    with pytest.raises(ValueError, match='part must be "train" or "test"'):
        load_horseseg_mat(path, "medium")
    with pytest.raises(ValueError, match=r"it is not a horse-features\.bin"):
        load_horseseg_features(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"horses\.mat"):
        load_horseseg_mat(path)
    made[1]["labels"] = made[1]["labels"][:-1]
    write_mat(path, {"train": made})
    with pytest.raises(ValueError, match=r"patterns_train\{2\} is not as HorseSeg has it \(\d labels for \d superp"):
        load_horseseg_mat(path)
    write_features(path, made)
    with h5py.File(path, "a") as file:
        del file["labels_000001"]
    with pytest.raises(ValueError, match="image 000001 is not as HorseSeg has it"):
        load_horseseg_features(path)
