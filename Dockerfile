# The image of servers and workers: `docker build -t tailrace .`
# Your agents are modules in /app: mount them there, or build `FROM tailrace` and `COPY` them.

FROM python:3.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tailrace
WORKDIR /src
# The pins first: a change of the code does not install them again.
COPY requirements/server.txt requirements/server.txt
RUN /opt/tailrace/bin/pip install --require-hashes --requirement requirements/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/tailrace/bin/pip install --no-deps --no-build-isolation .

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /app --shell /usr/sbin/nologin tailrace \
    && install --directory --owner tailrace /app /data
COPY --from=build /opt/tailrace /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TAILRACE_DATABASE=/data/tailrace.db \
    TAILRACE_HOST=0.0.0.0 \
    TAILRACE_LOG_FORMAT=json
WORKDIR /app
VOLUME /data
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# /ready is 200 while the store answers. The server answers for the names in `hosts` alone.
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:' + os.environ.get('TAILRACE_PORT', '8000') + '/ready', headers={'Host': os.environ.get('TAILRACE_HOSTS', 'localhost').split(',')[0]}), timeout=5)"]
ENTRYPOINT ["tailrace"]
CMD ["serve", "main:app"]
