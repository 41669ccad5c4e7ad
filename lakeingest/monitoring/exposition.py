"""The figures in the text format of Prometheus.

The lines are made here, because a run with little to do may spend little: the import of Prometheus's library alone
takes as much as such a run has for all of its metrics. `tests/monitoring/test_exposition.py` holds them equal to the
lines of that library.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

from lakeingest.disk import replace_shared
from lakeingest.monitoring.definitions import DEFINITIONS, Definition
from lakeingest.monitoring.figures import Figures, Labels, Values

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = _IN_HELP | str.maketrans({'"': r"\""})
_HEADS = {
    name: f"# HELP {name} {definition.meaning.translate(_IN_HELP)}\n# TYPE {name} {definition.kind}\n"
    for name, definition in DEFINITIONS.items()
}

_BY_FIRST = {definition.samples[0]: definition for definition in DEFINITIONS.values()}  # a summary has two series


class Exposition:
    """The text of a run's figures. The parts that stay the same are made once. Several threads may ask for the text."""

    def __init__(self, pipeline: str, figures: Figures) -> None:
        """`pipeline`: the value of the label of this name, which each series has."""
        self._figures, self._pipeline = figures, pipeline
        self._lock = threading.Lock()
        self._starts: dict[str, dict[Labels, str]] = {}  # by series and labels, the line up to its value
        self._version, self._still = -1, ""  # of what does not change as time passes: its version and its lines

    def text(self) -> bytes:
        """The figures as they are now."""
        with self._lock:
            version, moving, still = self._figures.since(self._version)
            if version != self._version:
                self._version, self._still = version, "".join(self._lines(still))
            return f"{''.join(self._lines(moving))}{self._still}".encode()

    def _lines(self, series: Values) -> Iterator[str]:
        """Yield the text of each metric that has a value."""
        for name, values in series.items():
            definition = _BY_FIRST.get(name)
            if definition is not None and values:
                yield _HEADS[definition.name]
                for sample in definition.samples:
                    yield from self._samples(sample, definition, series[sample])

    def _samples(self, name: str, definition: Definition, values: dict[Labels, float]) -> Iterator[str]:
        """Yield a line for each value of a series."""
        old = self._starts.get(name, {})
        # labels that have no value any more are forgotten
        starts = self._starts[name] = {key: old.get(key) or self._start(name, definition, key) for key in values}
        for key, value in values.items():
            yield f"{starts[key]}{float(value)!r}\n"

    def _start(self, name: str, definition: Definition, labels: Labels) -> str:
        """The line of a sample up to its value."""
        names, values = ("pipeline", *definition.labels), (self._pipeline, *labels)
        pairs = sorted(zip(names, values, strict=True))
        inside = ",".join(f'{label}="{value.translate(_IN_LABEL)}"' for label, value in pairs)
        return f"{name}{{{inside}}} "


def write_textfile(path: Path, exposition: Exposition) -> None:
    """Replace the text file by the figures, in one step. Whoever may list its folder may read it, and nobody else.

    Raises OSError.
    """
    replace_shared(path, exposition.text())
