"""`benchmarks.pipeline` in a process that begins and ends as that of the command `lakeingest run`.

Such a process imports some modules late, and collects garbage rarely. It also imports what the command line needs.
"""

import gc

from lakeingest.cli import collect_rarely
from lakeingest.late_imports import import_late, import_pandas_later


def main() -> None:
    """Do what `benchmarks.pipeline` does. Its arguments are the same."""
    collect_rarely()
    import_late()  # before the imports of a run, which `benchmarks.pipeline` has
    import_pandas_later()
    from benchmarks.pipeline import main as work

    work()
    gc.freeze()  # the command ends like that, too


if __name__ == "__main__":
    main()
