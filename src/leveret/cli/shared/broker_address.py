"""Where commands find the broker: the default address and the environment variables."""

from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:15672"
URL_ENV: Final = "LEVERET_URL"
USER_ENV: Final = "LEVERET_USER"
PASSWORD_ENV: Final = "LEVERET_PASSWORD"
