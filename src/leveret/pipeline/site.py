"""Where a flow works: broker, vhost, lake, Spark. What the options of every command say.

Imports nothing of Spark, so that `leveret` starts fast and can say what is missing; `session` and
`require_spark` are the only ways to it.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from leveret.errors import ConfigError
from leveret.pipeline.interrupts import starting
from leveret.pipeline.masters import require_master

LOCAL: Final = "local[*]"
LOG_LEVEL: Final = "FATAL"  # what fails is told by the command, in one sentence
EXAMPLE_URL: Final = "http://user:password@host:15672"
NO_SPARK: Final = "the pipeline needs PySpark and pyarrow: pip install 'leveret[spark]'"


@dataclass(frozen=True)
class Site:
    """One broker, one lake, one Spark."""

    url: str  # http://host:port, with user and password
    vhost: str = "/"
    lake_dir: str | None = None
    master: str = LOCAL

    @property
    def lake_path(self) -> Path:
        """Where the lake is; ConfigError where no option says it."""
        if self.lake_dir is None:
            raise ConfigError("give --lake DIR: where the lake is")
        return Path(self.lake_dir).absolute()

    def options(self, **more: object) -> dict[str, str]:
        """Options for `format("leveret")`: url, vhost and what is given besides."""
        given = {"url": self.url, "vhost": self.vhost, **more}
        return {name: _text(value) for name, value in given.items() if value is not None}

    def session(self, name: str) -> Any:
        """A Spark session; ConfigError where Spark or Java is missing, or the master."""
        require_spark()
        from leveret.pipeline.session import spark_session

        require_master(self.master)
        with starting():
            session = spark_session(f"leveret {name}", master=self.master, is_quiet=True)
        session.sparkContext.setLogLevel(LOG_LEVEL)
        return session


def require_spark() -> None:
    """Raises ConfigError with what to install."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(NO_SPARK)


def with_login(url: str, user: str | None, password: str | None) -> str:
    """The address with user and password in it, where they were given apart."""
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


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
