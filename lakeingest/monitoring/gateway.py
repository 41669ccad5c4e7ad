"""The figures in a push gateway, by Prometheus's library."""

from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import basic_auth_handler, default_handler, push_to_gateway
from prometheus_client.registry import Collector

from lakeingest.config.metrics import Metrics
from lakeingest.monitoring.definitions import DEFINITIONS, Definition
from lakeingest.monitoring.figures import Figures, Labels

JOB = "lakeingest"  # the label `job` in a push gateway
PUSH_SECONDS = 5.0  # how long a gateway may take to answer


class _Collector(Collector):
    """Gives the figures to Prometheus's library, with the label `pipeline`."""

    def __init__(self, pipeline: str, figures: Figures) -> None:
        self.pipeline, self.figures = pipeline, figures

    def collect(self) -> Iterator[Metric]:
        """Each metric that has a value now."""
        series = self.figures.values()
        for definition in DEFINITIONS.values():
            family = _family(definition, self.pipeline, series)
            if family.samples:
                yield family


def _family(definition: Definition, pipeline: str, series: dict[str, dict[Labels, float]]) -> Metric:
    """A metric with its values, in the form of Prometheus's library."""
    names, values = ("pipeline", *definition.labels), series.get(definition.samples[0], {})
    if definition.kind == "summary":
        summary = SummaryMetricFamily(definition.name, definition.meaning, labels=names)
        counts = series.get(definition.samples[1], {})
        for labels, total in values.items():
            summary.add_metric((pipeline, *labels), count_value=round(counts[labels]), sum_value=total)
        return summary
    kind = GaugeMetricFamily if definition.kind == "gauge" else CounterMetricFamily
    family = kind(definition.name, definition.meaning, labels=names)
    for labels, value in values.items():
        family.add_metric((pipeline, *labels), value)
    return family


def registry_of(pipeline: str, figures: Figures) -> CollectorRegistry:
    """A registry of Prometheus's library, which has the figures as they are when it is asked."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(pipeline, figures))
    return registry


def push(settings: Metrics, pipeline: str, registry: CollectorRegistry) -> None:
    """Replace the figures of this pipeline in the push gateway. Raises OSError if the gateway does not take them.

    No message has a part of the URL, because the URL may have a token for a proxy before the gateway.
    """
    handler: Callable[..., Any] = default_handler
    if settings.push_user is not None:
        handler = partial(
            basic_auth_handler, username=settings.push_user, password=settings.push_password.get_secret_value()
        )
    assert settings.push is not None  # noqa: S101 - the caller pushes only if it is set
    try:
        push_to_gateway(settings.push, JOB, registry, {"pipeline": pipeline}, PUSH_SECONDS, handler)
    except HTTPError as error:
        raise OSError(f"the gateway answers {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise OSError(str(getattr(error, "reason", None) or type(error).__name__)) from None
