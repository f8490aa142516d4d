"""Differences of two methods that were judged by the same examples, and when they are clear."""

from __future__ import annotations

from dataclasses import dataclass

#: How many standard errors a difference must have to be called one.
CLEAR = 3.0


@dataclass(frozen=True)
class PairedDifference:
    """A difference in points, and its standard error over examples, paired."""

    mean: float
    error: float

    @property
    def verdict(self) -> str:
        """Within the noise, or better or worse beyond three standard errors."""
        is_clear = abs(self.mean) > CLEAR * self.error
        return "within" if not is_clear else "better" if self.mean > 0 else "worse"
