"""What a process imports late: modules that other modules import in any case, and that most commands never use.

`_LATE` names these modules. Each is executed when somebody asks for one of its names. PyArrow also goes without pandas,
whose import takes a fifth of a second, until somebody converts to pandas.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock, get_ident
from types import ModuleType
from typing import Any

from lakeingest.late_methods import make_methods_late

# A run with nothing to do, and `status`, use none of them. They would take an eighth of the seconds of such a command.
_LATE = frozenset(
    {
        # PyMySQL needs these three only where a password is encrypted by a public key
        "cryptography.hazmat.primitives.asymmetric.padding",
        "cryptography.hazmat.primitives.hashes",
        "cryptography.hazmat.primitives.serialization",
        "fastavro",
        "pyarrow.compute",  # makes 300 functions, each with its own documentation
        "pyarrow.dataset",
        "pyiceberg.expressions.parser",  # builds the grammar of filters that are texts, with pyparsing
        "strictyaml",  # reads PyIceberg's own file of settings
    }
)
# The names of these modules that PyIceberg asks for while it is imported, each with another module that has it, too.
_ELSEWHERE = {("pyarrow.compute", "Expression"): "pyarrow._compute"}
_LOCK = RLock()  # while one thread executes a module, the others wait
_executing: set[str] = set()


class _Late(ModuleType):
    """A module that is executed, once, when somebody asks for one of its names."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):  # the import itself asks for these
            return ModuleType.__getattribute__(self, name)
        if (origin := _ELSEWHERE.get((self.__name__, name))) is not None:
            return getattr(import_module(origin), name)
        with _LOCK:
            _execute(self)
        return ModuleType.__getattribute__(self, name)


class _LateLoader(Loader):
    """Loads a module without executing it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Late


class _LateFinder(MetaPathFinder):
    """Finds the modules of `_LATE`, and leaves all others to the other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


class _NoPandas(MetaPathFinder):
    """Refuses pandas to one thread, and leaves all else to the other finders."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas" and get_ident() == self._thread:
            raise ModuleNotFoundError(fullname)


def _execute(module: ModuleType) -> None:
    """Execute a module that is still late. The module does not find pandas, for which PyArrow's datasets look.

    Does nothing if this thread is executing the module already: the module asks for names that it has defined by then.
    """
    spec = module.__spec__
    if spec is None or not isinstance(spec.loader, _LateLoader) or spec.name in _executing:
        return
    _executing.add(spec.name)
    try:
        with _without_pandas():
            spec.loader.loader.exec_module(module)
    finally:
        _executing.discard(spec.name)
    spec.loader = module.__loader__ = spec.loader.loader
    module.__class__ = ModuleType  # from now on its names are found as those of any other module


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Within the block, this thread does not find pandas."""
    finder = _NoPandas(get_ident())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_late() -> None:
    """Let the modules of `_LATE` that are imported from now on be executed when they are first used.

    Numpy, which PyArrow imports, gets no threads for linear algebra. Nobody needs these threads here, and each waits
    busily for work, which takes a twentieth of a second. On Linux, PyArrow gets an allocator that gives memory back
    sooner: with its usual one, each thread keeps for itself what it has freed. All threads share one pool of this
    allocator. Pydantic does not look for plugins in all installed packages, which takes 30 milliseconds. Variables that
    are set stay as set.
    """
    make_methods_late()
    if not any(isinstance(finder, _LateFinder) for finder in sys.meta_path):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        if sys.platform == "linux":  # PyArrow's wheels have jemalloc; a build without it warns, and takes the usual one
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
            # A fork lacks the thread that gives freed memory back, and PyArrow's `release_unused` does nothing here. So
            # a worker keeps what each pool has freed. With `dirty_decay_ms:0` it would keep nothing, but take 1.6 times
            # as many CPU seconds
            os.environ.setdefault("JE_ARROW_MALLOC_CONF", "narenas:1")
        sys.meta_path.insert(0, _LateFinder())


def import_pandas_later() -> None:
    """Import PyArrow without pandas. A later conversion to pandas imports pandas.

    Until then PyArrow takes a pandas Series for a plain sequence. So only processes that run no code of users call this
    function: the command, and the run's own workers.
    """
    if "pandas" in sys.modules:
        return
    with _without_pandas():
        import pyarrow as pa

        pa.lib._pandas_api.have_pandas  # noqa: B018, SLF001 - looks for pandas, which PyArrow does only once by itself
        pa.array([0])  # with the first values of Python, its library in C++ looks once more


def import_now() -> None:
    """Execute the modules that are imported and still late. A process does so before it forks others.

    The forked processes share the memory of the modules.
    """
    with _LOCK:
        for name in sorted(_LATE & sys.modules.keys()):
            _execute(sys.modules[name])
