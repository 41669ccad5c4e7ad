"""PyArrow without pandas, until a conversion to pandas needs it: its import takes a fifth of a second each time."""

import sys


class _NoPandas:
    """A finder of modules that finds no pandas, and lets others find the rest."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_pandas_later() -> None:
    """Let PyArrow find no pandas now. A conversion to pandas looks for it again.

    Until then PyArrow takes a Series for a plain sequence. So this is for processes that run no code of users: the
    command, and the run's own workers.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow.dataset  # looks for pandas

        pyarrow.lib._pandas_api.have_pandas  # noqa: B018, SLF001 - looks for pandas, which PyArrow does only once by itself
    finally:
        sys.meta_path.remove(_NoPandas)
