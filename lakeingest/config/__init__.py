"""pipeline.yml as frozen values. No other file says where the source, the catalog and the state are."""

from lakeingest.config.catalogs import CATALOG, Catalog
from lakeingest.config.formats import FORMATS
from lakeingest.config.load import Config, load_config, parse_config
from lakeingest.config.quality import Quality
from lakeingest.config.source import Source, Tls
from lakeingest.config.spark import Spark
from lakeingest.config.target import History, Target
from lakeingest.config.throttle import Throttle

__all__ = [
    "CATALOG",
    "FORMATS",
    "Catalog",
    "Config",
    "History",
    "Quality",
    "Source",
    "Spark",
    "Target",
    "Throttle",
    "Tls",
    "load_config",
    "parse_config",
]
