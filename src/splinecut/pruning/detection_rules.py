"""The published early-bird rules: threshold and window of each, by name. Needs no torch, so reports can read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DetectionRule:
    """A partition has settled once `window` distances are all below `threshold`."""

    threshold: float
    window: int

    def with_overrides(self, threshold: float | None = None, window: int | None = None) -> DetectionRule:
        """This rule with what is given instead of its own."""
        return DetectionRule(
            self.threshold if threshold is None else threshold, self.window if window is None else window
        )


DETECTION_RULES = {
    "paper": DetectionRule(threshold=0.15, window=2),  # You et al. 2022, Sec. 3.3: two distances among three epochs
    "authors": DetectionRule(threshold=0.16, window=3),  # their released code
}
