"""Structured examples on disk: a folder of shards, each a folder of arrays that can be mapped into memory.

::

    folder/store.json              format version, dtype, whether sparse, numbers of features, label values
    folder/shard-000000/           manifest.json: shapes, dtypes, sizes and checksums of the files beside it
        features.npy               (n_sites, n_features), float16, float32 or float64; or, where they are sparse,
        feature_starts.npy         where each site's entries begin,
        feature_indices.npy        their columns, and
        feature_values.npy         their values, float32 or float64, or nothing where all are 1
        site_offsets.npy           where each example's sites begin
        edges.npy, edge_offsets.npy
        sizes.npy, labels.npy      of the sites; label numbers, -1 where a label is not known
        edge_features.npy, label_features.npy, label_offsets.npy     where the examples have them
    folder/shard-000001/ ...

A shard is written under another name and renamed when it is whole and on disk. So a writer that is killed leaves a
store that opens, with every shard that was finished.
"""

from perturbmap.data.store.store import Store
from perturbmap.data.store.writing import write_store

__all__ = ["Store", "write_store"]
