"""The default address of the broker, and the environment variables that give another one."""

from typing import Final

DEFAULT_URL: Final = "http://127.0.0.1:15672"
URL_ENV: Final = "LEVERET_URL"
USER_ENV: Final = "LEVERET_USER"
PASSWORD_ENV: Final = "LEVERET_PASSWORD"
