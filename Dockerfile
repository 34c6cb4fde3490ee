# Two images from one file:
#   docker build --target sidecar -t kafka-group-sidecar .         the proxy, no JVM
#   docker build --target spark   -t kafka-group-sidecar-spark .   the fleet pipeline, with Java 17
# pip checks the hash of every package that it downloads. `make sbom` lists the packages of both images.
FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements requirements
RUN python -m venv /opt/group-sidecar \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --no-build-isolation --require-hashes -r requirements/build.txt \
 && /opt/build/bin/pip wheel --no-build-isolation --require-hashes --wheel-dir wheels -r requirements/sidecar.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY group_sidecar group_sidecar
COPY codecs codecs
COPY coordinator coordinator
COPY policies policies
COPY metrics metrics
COPY proxy proxy
COPY spark spark
COPY demo demo
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir wheels . \
 && /opt/group-sidecar/bin/pip install --no-deps --no-index wheels/*.whl

FROM build AS build-spark
RUN /opt/build/bin/pip wheel --no-build-isolation --require-hashes --wheel-dir wheels-spark -r requirements/spark.txt \
 && /opt/group-sidecar/bin/pip install --no-deps --no-index wheels-spark/*.whl

FROM python:3.11-slim-bookworm AS runtime
RUN useradd --system --uid 10001 --home-dir /var/lib/group-sidecar --create-home group-sidecar
ENV PATH=/opt/group-sidecar/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /var/lib/group-sidecar

FROM runtime AS spark
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/group-sidecar /opt/group-sidecar
USER 10001
ENTRYPOINT ["python", "-m", "group_sidecar.spark"]

FROM runtime AS sidecar
COPY --from=build /opt/group-sidecar /opt/group-sidecar
EXPOSE 9092 9464
HEALTHCHECK --interval=10s --timeout=2s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz', timeout=1)"]
ENTRYPOINT ["group-sidecar"]
CMD ["run", "--config", "/etc/group-sidecar/sidecar.yaml"]
