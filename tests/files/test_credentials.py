"""Credentials for the state's files: those of a profile of Amazon's, also such that are renewed."""

import json
import sys
import uuid
from pathlib import Path

import pytest

from lakeingest.config.place import Place
from lakeingest.config.storage import Storage
from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import StorageFailed
from lakeingest.files import bucket, credentials
from lakeingest.files import file as files
from lakeingest.files.stored import Stored

RENEWED = """
import datetime, json, pathlib, sys
asked = pathlib.Path(sys.argv[1])
asked.write_text((asked.read_text() if asked.exists() else "") + "x")
until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=20)
print(json.dumps({"Version": 1, "AccessKeyId": sys.argv[2], "SecretAccessKey": sys.argv[3],
                  "Expiration": until.isoformat()}))
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file of profiles, the only place where credentials are."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    bucket._client.cache_clear()  # noqa: SLF001 - a process keeps its clients
    return file


def place(server: LocalS3) -> Stored:
    """A new folder, without credentials in pipeline.yml."""
    return Stored.of(Place.of(f"s3://{server.bucket}/{uuid.uuid4().hex}"), Storage.model_validate(server.storage))


def test_the_keys_of_a_profile_are_used(s3: LocalS3, profile: Path) -> None:
    """As PyIceberg and Spark use them for the tables."""
    profile.write_text(f"[lake]\naws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}\n")
    file = place(s3) / "a.json"
    assert file.create({"by": 1})
    assert files.document(file) == {"by": 1}


def test_keys_that_expire_come_from_a_program(s3: LocalS3, profile: Path, tmp_path: Path) -> None:
    """A profile may name one; other programs renew the keys of a role in the same way."""
    program, asked = tmp_path / "keys.py", tmp_path / "asked"
    program.write_text(RENEWED)
    command = f"{sys.executable} {program} {asked} {s3.access_key} {s3.secret_key}"
    profile.write_text(f"[lake]\ncredential_process={command}\n")
    file = place(s3) / "a.json"
    assert file.create({"by": 1})
    assert asked.exists()


def test_wrong_keys_and_an_unknown_profile_are_named(s3: LocalS3, profile: Path) -> None:
    """The error says what to correct."""
    with pytest.raises(StorageFailed, match=r"lake.* correct AWS_PROFILE"):
        (place(s3) / "a.json").create({})
    profile.write_text("[lake]\naws_access_key_id=nobody\naws_secret_access_key=wrong\n")
    bucket._client.cache_clear()  # noqa: SLF001
    with pytest.raises(StorageFailed, match=r"correct target\.storage, the credentials"):
        (place(s3) / "a.json").create({})


def test_a_profile_needs_amazons_library(s3: LocalS3, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the client would look for a role, in vain and for long."""
    monkeypatch.setattr(credentials, "find_spec", lambda _: None)
    with pytest.raises(StorageFailed, match=r"profile lake is read by boto3 .*lakeingest\[aws\]"):
        (place(s3) / "a.json").create({})
    assert json.dumps(dict(place(s3).bucket.options)).count("key") == 0
