"""Modules that are executed when they are first used, and PyArrow without pandas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHOSEN = {"ARROW_DEFAULT_MEMORY_POOL", "JE_ARROW_MALLOC_CONF", "OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS"}
LATE = """
import sys
from types import ModuleType
from lakeingest.late_imports import import_late, import_now, import_pandas_later
import_late()
"""


def said_by(code: str, **variables: str) -> str:
    """What a process with these variables prints that begins with late imports."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN} | variables
    asked = subprocess.run(
        [sys.executable, "-c", LATE + code], check=True, capture_output=True, text=True, env=environment
    )
    return asked.stdout.strip()


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("pyarrow.compute", "sum([1, 2]).as_py() == 3"),
        ("pyarrow.dataset", "dataset(pyarrow.table({'a': [1]})).count_rows() == 1"),
        ("pyiceberg.expressions.parser", "parse('a = 1').term.name == 'a'"),
        ("strictyaml", "load('a: b').data == {'a': 'b'}"),
        ("fastavro", "schema.parse_schema('long') == 'long'"),
        ("cryptography.hazmat.primitives.hashes", "SHA256.digest_size == 32"),
        ("cryptography.hazmat.primitives.serialization", "Encoding.PEM.__class__.__name__ == 'Encoding'"),
        ("cryptography.hazmat.primitives.asymmetric.padding", "PKCS1v15.name == 'EMSA-PKCS1-v1_5'"),
    ],
)
def test_a_late_module_is_executed_when_it_is_used(module: str, use: str) -> None:
    """Not before; and afterwards it is as any other module."""
    code = f"""
import pyarrow
import {module} as late
assert type(late) is not ModuleType and late is sys.modules['{module}']
assert late.{use}
assert type(late) is ModuleType and late.__spec__.loader is late.__loader__
print(type(late.__loader__).__name__)
"""
    assert said_by(code) == "SourceFileLoader"


def test_what_is_late_can_be_executed_before_a_fork() -> None:
    """Of the modules that are imported; the others stay as they are."""
    code = """
import pyarrow.compute
import_now()
print(type(pyarrow.compute) is ModuleType, 'fastavro' in sys.modules)
"""
    assert said_by(code) == "True False"


def test_a_late_module_is_executed_once_by_many_threads() -> None:
    """Nobody sees a module with a part of its names."""
    code = """
import pyarrow.compute as pc
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(16) as pool:
    print(set(pool.map(lambda number: pc.add(number, 1).as_py() - number, range(500))))
"""
    assert said_by(code) == "{1}"


def test_pyiceberg_is_imported_without_executing_what_is_late() -> None:
    """A newer PyIceberg or PyArrow may use more of it while it is imported: then look whether that can be spared."""
    code = """
import pyiceberg.catalog, pyiceberg.io.pyarrow, pyiceberg.table
from lakeingest.late_imports import _LATE
print(sorted(name for name in _LATE if type(sys.modules.get(name)) is ModuleType))
"""
    assert said_by(code) == "[]"


def test_pymysql_is_imported_without_cryptography() -> None:
    """Only a password that is encrypted by a public key needs it. It works when it is used."""
    code = """
import pymysql
from pymysql import _auth
keys = "cryptography.hazmat.bindings._rust" in sys.modules
from cryptography.hazmat.primitives.asymmetric import rsa
key = rsa.generate_private_key(65537, 2048)
public = key.public_key().public_bytes(_auth.serialization.Encoding.PEM, _auth.serialization.PublicFormat.PKCS1)
sealed = _auth.sha2_rsa_encrypt(b"secret", bytes(20), public)
print(keys, len(sealed))
"""
    assert said_by(code) == "False 256"


def test_pyarrow_goes_without_pandas_until_somebody_converts_to_it() -> None:
    """Its functions and datasets work without."""
    code = """
import_pandas_later()
import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
table = pa.table({"a": [1, 2]})
pc.is_in(table["a"], value_set=pa.array([1]))
ds.dataset(table).to_table(filter=pc.field("a") > 1)
before = "pandas" in sys.modules
print(before, table.to_pandas()["a"].sum(), "pandas" in sys.modules)
"""
    assert said_by(code) == "False 3 True"


@pytest.mark.skipif(sys.platform != "linux", reason="the other allocator is chosen on Linux")
def test_the_command_chooses_the_allocator_no_threads_of_numpy_and_no_plugins_of_pydantic() -> None:
    """Long runs keep their memory with the first two; a user who sets the variables gets what he sets."""
    code = """
import os, pyarrow
names = "JE_ARROW_MALLOC_CONF", "OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS"
variables = [os.environ[name] for name in names]
print(pyarrow.default_memory_pool().backend_name, *variables)
"""
    assert said_by(code) == "jemalloc narenas:1 1 __all__"
    chosen = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "2", "PYDANTIC_DISABLE_PLUGINS": "no"}
    assert said_by(code, JE_ARROW_MALLOC_CONF="narenas:4", **chosen) == "system narenas:4 2 no"


@pytest.mark.skipif(sys.platform != "linux", reason="the other allocator is chosen on Linux")
@pytest.mark.long("the test before shows the setting; this one shows what it is for")
def test_a_fork_keeps_less_memory_if_all_threads_share_one_pool(tmp_path: Path) -> None:
    """In a fork nobody gives freed memory back, so each pool keeps what its threads have ever needed."""
    code = f"""
import os, pathlib
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(1)
texts = pa.array([f"a note of a usual length, number {{number}}" for number in range(300_000)])
numbers = {{name: np.arange(300_000) for name in "abcdefgh"}}
pq.write_table(pa.table(numbers | {{"text": texts}}), "{tmp_path}/rows.parquet")
order = pa.array(rng.permutation(300_000))
if os.fork() == 0:
    for _ in range(12):
        rows = pq.read_table("{tmp_path}/rows.parquet").take(order)
        rows.select(["a", "b"]).group_by("a", use_threads=False).aggregate([("b", "max")])
        pq.write_table(rows.slice(0, 100_000), "{tmp_path}/new.parquet")
    _, resident, shared, *_ = pathlib.Path("/proc/self/statm").read_text().split()
    print((int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") >> 20, flush=True)
    os._exit(0)
os.wait()
"""
    megabytes = int(said_by(code))
    assert megabytes < 0.85 * int(said_by(code, JE_ARROW_MALLOC_CONF="narenas:8"))
