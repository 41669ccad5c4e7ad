"""A reader of our output that has gone: `lakeingest … | head` is no error of ours."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakeingest.terminal import EXIT_CLOSED_PIPE

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "words", [("explain",), ("explain", "BinlogGone"), ("--help",), ("check", "--json"), ("check",)]
)
@pytest.mark.long("starts Python for each command", only=("words0", "words2", "words4"))
def test_a_closed_pipe_is_no_error(words: Sequence[str], tmp_path: Path) -> None:
    """Nothing is said on stderr, and the exit code is that of a process which SIGPIPE ended."""
    (tmp_path / "pipeline.yml").write_text(
        '{"name": "p", "source": {"host": "127.0.0.1", "port": 1, "user": "u"}, "tables": {"include": ["a.*"]}}'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeingest", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()  # before it writes: every write meets a closed pipe
    with process:
        said = process.stderr.read() if process.stderr else ""
        code = process.wait(timeout=60)
    assert (code, said) == (EXIT_CLOSED_PIPE, "")
