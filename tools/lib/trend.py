"""Whether a value that was sampled over time grows."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Trend:
    """The least-squares line through samples of (seconds, value)."""
    slope: float  # a second
    first: float  # the line's value at the first and at the last sample
    last: float

    @property
    def growth(self) -> float:
        return self.last - self.first


def trend_of(samples: list[tuple[float, float]]) -> Trend:
    """REQUIRES: at least two samples, at different times."""
    count = len(samples)
    mean_time = sum(time for time, _ in samples) / count
    mean_value = sum(value for _, value in samples) / count
    spread = sum((time - mean_time) ** 2 for time, _ in samples)
    slope = sum((time - mean_time) * (value - mean_value) for time, value in samples) / spread
    at = [mean_value + slope * (time - mean_time) for time in (samples[0][0], samples[-1][0])]
    return Trend(slope, *at)
