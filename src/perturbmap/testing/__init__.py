"""Checks that every structure, model, objective, loss and solver must pass, ours and yours.

A check tries a part on random small instances, the smallest first, and compares it with its definition: enumeration,
finite differences, a plain loop. `ConformanceError` says which promise the part breaks, on which instance, what was
found there and what was expected.
"""

from lazy_loader import attach_stub

# What there is stands in __init__.pyi; each name is imported when it is first used.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
