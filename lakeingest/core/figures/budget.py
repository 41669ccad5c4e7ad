"""The budget of metrics: when a run delivers its figures, so that all of them cost a small part of its CPU seconds."""

SHARE = 0.005  # of the CPU seconds of a run: what metrics spend at most, beside what cannot wait
MOST_SECONDS = 60.0  # figures are never older, whatever they cost
NEWS_SHARE = 0.01  # of a processor's time: what news cost at most, if news come again and again


def is_due(*, cost: float, spent: float, run: float, waited: float, is_news: bool) -> bool:
    """Whether figures are delivered now.

    `cost`: the CPU seconds of the last delivery. Since it began, `waited` seconds have passed. In this time, the whole
    run has taken `run` CPU seconds, and all metrics, with the delivery itself, have taken `spent` of them. `is_news`: a
    table has failed or recovered in this time.
    """
    if is_news:
        return waited >= cost / NEWS_SHARE
    return waited >= MOST_SECONDS or spent <= SHARE * run
