"""List prices of services that sell processors and memory by the second: data, with their sources.

The pages were looked up on the day in `LOOKED_UP`. Discounts, taxes and other regions are not included.
"""

from dataclasses import dataclass

LOOKED_UP = "2026-11-29"  # public copies of the pages, which may be older


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a service: dollars for an hour of a virtual processor, and for an hour of a GB of its memory."""

    service: str
    vcpu_hour: float
    gb_hour: float
    region: str
    source: str


PRICES = (
    Price("EMR Serverless", 0.052624, 0.0057785, "us-east-1, x86", "https://aws.amazon.com/emr/pricing/"),
    # 0.06 for an hour of a DCU; a processor is 0.6 DCU, and a GB is 0.1 DCU up to 8 GB a processor
    Price("Dataproc Serverless", 0.036, 0.006, "us-central1", "https://cloud.google.com/dataproc-serverless/pricing"),
)
