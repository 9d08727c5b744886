# An image with one broker: docker build -t leveret . ; see docs/install.md.
# The first stage has the compiler, the second only Python and the installed package.

FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py constraints.txt README.md CHANGELOG.md SECURITY.md LICENSE ./
COPY docs ./docs
COPY src ./src
RUN python -m venv /opt/leveret \
    && /opt/leveret/bin/pip install --no-cache-dir -c constraints.txt setuptools mypy librt mypy_extensions msgspec \
    && /opt/leveret/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels . \
    && rm -rf /opt/leveret \
    && python -m venv /opt/leveret \
    && /opt/leveret/bin/pip install --no-cache-dir -c constraints.txt /wheels/leveret-*.whl \
    && /opt/leveret/bin/leveret --version

FROM python:3.11-slim
COPY --from=build /opt/leveret /opt/leveret
RUN useradd --system --uid 10001 --home-dir /var/lib/leveret --shell /usr/sbin/nologin leveret \
    && install -d -o leveret -g leveret -m 0700 /var/lib/leveret
ENV PATH=/opt/leveret/bin:$PATH \
    LEVERET_DATA=/var/lib/leveret \
    LEVERET_HOST=0.0.0.0
USER leveret
WORKDIR /var/lib/leveret
VOLUME /var/lib/leveret
EXPOSE 5672 15672
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:15672/api/health', timeout=4)"]
# The broker drains its clients on SIGTERM and ends with code 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["leveret"]
CMD ["serve"]
