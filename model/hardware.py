"""Hardware: what memory bandwidth allows a decode step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BandwidthCeiling:
    """Plain decoding against memory bandwidth: each step reads all weights once (roofline, width 1)."""

    bytes_per_step: float
    bytes_per_second: float

    @property
    def tokens_per_second(self) -> float:
        """Upper bound of plain decoding."""
        return self.bytes_per_second / self.bytes_per_step

    def share(self, tokens_per_second: float) -> float:
        """Bandwidth that plain decoding at this speed uses, as a fraction."""
        return tokens_per_second * self.bytes_per_step / self.bytes_per_second
