"""PyArrow without pandas until a conversion to pandas: to import pandas takes each process a fifth of a second."""

import sys


class _NoPandas:
    """A finder of modules that refuses pandas, and leaves all other modules to the other finders."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_pandas_later() -> None:
    """Import PyArrow's datasets without pandas. A later conversion to pandas imports pandas.

    Until then PyArrow takes a pandas Series for a plain sequence. So only processes that run no code of users call this
    function: the command, and the run's own workers.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow.dataset  # looks for pandas

        pyarrow.lib._pandas_api.have_pandas  # noqa: B018, SLF001 - looks for pandas, which PyArrow does only once by itself
    finally:
        sys.meta_path.remove(_NoPandas)
