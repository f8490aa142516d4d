"""What runs on the shards of a store, in other processes or on other machines, through joblib."""

from perturbmap.distributed.by_shard import ask
from perturbmap.distributed.local_sgd import LocalSGD

__all__ = ["LocalSGD", "ask"]
