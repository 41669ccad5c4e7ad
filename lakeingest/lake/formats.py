"""The formats that a table can be copied into, by their names in pipeline.yml."""

from lakeingest.config import Config
from lakeingest.lake.target import Target


def open_target(config: Config) -> Target:
    """The target of the configured format."""
    # each is imported where it is used: they take long
    if config.target.format == "hudi":
        from lakeingest.lake.hudi.target import HudiTarget

        return HudiTarget(config.target, config.state / "staging")
    from lakeingest.lake.iceberg.target import IcebergTarget

    return IcebergTarget(config.target)
