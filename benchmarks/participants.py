"""Who takes part: our own decoders, and peers, which their own tools build from the programs in `peers`."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
_BUILD_SECONDS = 900


class NotMeasured(Exception):
    """Why there are no figures of a participant; the others have theirs."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A program that decodes and prints what it took; `rival` is the one of ours that does the same.

    `build` makes it in a folder and answers its command, which gets `mode` and what to read as further arguments.
    """

    name: str
    build: Callable[[Path], list[str]]
    mode: str
    rival: str
    is_slow: bool = False  # it reads the first file only


def ours(_folder: Path) -> list[str]:
    """Our decoders."""
    return [sys.executable, "-m", "benchmarks.ours"]


def reference(_folder: Path) -> list[str]:
    """mysql-replication."""
    return [sys.executable, "-m", "benchmarks.reference"]


def go(folder: Path) -> list[str]:
    """go-mysql."""
    program = folder / "decode-go"
    run_tool("go", "build", "-o", str(program), cwd=PEERS / "go")
    return [str(program)]


def java(folder: Path) -> list[str]:
    """mysql-binlog-connector-java."""
    target = folder / "java"
    goals = ("compile", "dependency:copy-dependencies")
    run_tool("mvn", "-q", "-B", f"-Dfolder={target}", f"-DoutputDirectory={target / 'lib'}", *goals, cwd=PEERS / "java")
    return ["java", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "Decode"]


PARTICIPANTS = (
    Participant("ours-file", ours, "file", "ours-file"),
    Participant("go-file", go, "file", "ours-file"),
    Participant("java-file", java, "file", "ours-file"),
    Participant("ours-wire", ours, "wire", "ours-wire"),
    Participant("go-wire", go, "wire", "ours-wire"),
    Participant("java-wire", java, "wire", "ours-wire"),
    Participant("reference", reference, "wire", "ours-wire", is_slow=True),
    Participant("ours-rows", ours, "rows", "ours-rows"),
)


def run_tool(tool: str, *arguments: str, cwd: Path) -> None:
    """Let a tool build something; NotMeasured with its first line when it fails."""
    program = shutil.which(tool)
    if program is None:
        raise NotMeasured(f"no {tool}")
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"{Path(tool).name} was not done in {_BUILD_SECONDS} s") from error
    if done.returncode != 0:
        [first, *_] = (done.stderr + done.stdout).strip().splitlines() or ["no reason given"]
        raise NotMeasured(f"{Path(tool).name} failed: {first}")
