# syntax=docker/dockerfile:1
# draftlane as an image: docker build --tag draftlane .
# It runs as nobody, needs no writable file system (mount a volume only where the configuration puts a journal), and
# reads /etc/draftlane/draftlane.toml, which has to say host = "0.0.0.0" in [server].

FROM python:3.11-slim-bookworm AS packages
WORKDIR /build
RUN python -m venv /venv
COPY pyproject.toml constraints.txt ./
# Only what the gateway needs to run, each at the version that the tests ran with; the code itself comes last, so that a
# change of it leaves this layer alone.
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt --requirement requirements.txt \
    && /venv/bin/pip uninstall --yes --quiet pip setuptools
# Judgement and relay become machine code here (deploy/build_hook.py); compiler and builder stay behind in this stage.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY LICENSE README.md ./
COPY deploy/build_hook.py deploy/
COPY policies policies
COPY proxy proxy
RUN DRAFTLANE_COMPILE=1 PIP_CONSTRAINT=constraints.txt pip install --no-cache-dir --disable-pip-version-check \
        --no-deps --no-compile --target /app .

FROM python:3.11-slim-bookworm
# PYTHONPATH, because a place that sets PYTHONSAFEPATH would take the working folder off the import path.
ENV PATH=/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1
COPY --from=packages /venv /venv
WORKDIR /app
COPY --from=packages /app ./
# Bytecode now, since the file system may be read-only when it runs.
RUN python -m compileall -q policies proxy
ENV PYTHONDONTWRITEBYTECODE=1
USER 65534:65534
EXPOSE 8080
# Alive, not ready: a gateway whose backends are all away should not be restarted.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
# SIGTERM lets running answers finish: give `docker stop` more than grace_seconds of the configuration.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "proxy"]
CMD ["serve", "--config", "/etc/draftlane/draftlane.toml"]
