"""The environment of a flow, from the options that every command has: broker, vhost, lake, Spark.

This module does not import Spark, so that `leveret` starts fast and can report a missing package.
`Environment.session` imports and starts it.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from leveret.errors import ConfigError
from leveret.pipeline.interrupts import clean_interrupts_during_startup
from leveret.pipeline.spark_master import require_master

LOCAL: Final = "local[*]"
SPARK_LOG_LEVEL: Final = "FATAL"  # commands report errors themselves, in one sentence
EXAMPLE_URL: Final = "http://user:password@host:15672"
NO_SPARK: Final = "the pipeline needs PySpark and pyarrow: pip install 'leveret[spark]'"


@dataclass(frozen=True)
class Environment:
    """One vhost of a broker, one lake, one Spark master."""

    url: str  # http://host:port, with user and password
    vhost: str = "/"
    lake_dir: str | None = None
    master: str = LOCAL

    @property
    def lake_path(self) -> Path:
        """The directory of the lake; raises ConfigError if no option gives it."""
        if self.lake_dir is None:
            raise ConfigError("give --lake DIR: the directory of the lake")
        return Path(self.lake_dir).absolute()

    def options(self, **more: object) -> dict[str, str]:
        """Return options for `format("leveret")`: url, vhost and the given ones without None."""
        given = {"url": self.url, "vhost": self.vhost, **more}
        return {name: _text(value) for name, value in given.items() if value is not None}

    def session(self, name: str) -> Any:
        """Start a Spark session; raise ConfigError if Spark, Java or the master is missing."""
        require_spark()
        from leveret.pipeline.session import spark_session

        require_master(self.master)
        with clean_interrupts_during_startup():
            session = spark_session(f"leveret {name}", master=self.master, is_quiet=True)
        session.sparkContext.setLogLevel(SPARK_LOG_LEVEL)
        return session


def require_spark() -> None:
    """Raise ConfigError with the install command if PySpark or pyarrow is missing."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(NO_SPARK)


def with_login(url: str, user: str | None, password: str | None) -> str:
    """Return the URL with the user and password that were given as separate options."""
    if user is None and password is None:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"--url is not an address such as {EXAMPLE_URL}") from None
    name = quote(user or parts.username or "guest", safe="")
    secret = quote(password or parts.password or "guest", safe="")
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{name}:{secret}@{place}"


def without_login(url: str) -> str:
    """Return the URL without user and password, for people to see."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
