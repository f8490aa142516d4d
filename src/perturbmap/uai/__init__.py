"""Files of the UAI inference competitions: models and evidence to potentials, and results back.

``model = uai.read("model.uai", evidence="model.evid")`` has ``potentials``, ``given`` and ``structure()`` for
inference; ``model.labels`` and ``model.marginals`` turn its answers into the file's own labels.
"""

from perturbmap.uai.factor_graph import Factor, FactorGraph
from perturbmap.uai.pairwise_model import PairwiseModel
from perturbmap.uai.reading import read, read_evidence, read_factors
from perturbmap.uai.writing import write_factors, write_labels, write_log_partition, write_marginals

__all__ = [
    "Factor",
    "FactorGraph",
    "PairwiseModel",
    "read",
    "read_evidence",
    "read_factors",
    "write_factors",
    "write_labels",
    "write_log_partition",
    "write_marginals",
]
