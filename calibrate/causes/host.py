"""The host's memory beside the device's: figures where they were not measured."""

HOST_BYTES_PER_SECOND = 50e9
"""Host memory (prior): two channels of DDR4 or DDR5 give 40 to 90 GB/s."""
HOST_RATIO = 4.0
"""A card's memory is at least four times as fast as its host's (RTX 3060 laptop: 336 against 50 GB/s; most 10 times)."""
