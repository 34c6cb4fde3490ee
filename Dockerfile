# Two images from one file (docs/installing/image.md):
#   docker build --target sidecar -t kafka-group-sidecar .         the proxy, no JVM
#   docker build --target spark   -t kafka-group-sidecar-spark .   the fleet pipeline, with Java 17
# pip checks the hash of every package that it downloads. `make sbom` lists the packages of both images.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS tools
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/build.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-build-isolation --require-hashes -r requirements/build.txt

# Third-party packages have a layer of their own. It changes only with their lists in requirements/ and with BASE.
FROM tools AS packages
COPY requirements/sidecar.txt requirements/
RUN python -m venv --without-pip /opt/group-sidecar \
 && /opt/build/bin/pip wheel --no-build-isolation --require-hashes --wheel-dir wheels -r requirements/sidecar.txt \
 && /opt/build/bin/pip --python /opt/group-sidecar/bin/python install --no-deps --no-index wheels/*.whl

FROM packages AS packages-spark
COPY requirements/spark.txt requirements/
RUN /opt/build/bin/pip wheel --no-build-isolation --require-hashes --wheel-dir wheels-spark -r requirements/spark.txt \
 && /opt/build/bin/pip --python /opt/group-sidecar/bin/python install --no-deps --no-index wheels-spark/*.whl

# Everything of the project itself goes into /opt/project, in the folders that it has in /opt/group-sidecar.
FROM packages AS build
COPY pyproject.toml setup.py README.md LICENSE ./
COPY group_sidecar group_sidecar
COPY codecs codecs
COPY coordinator coordinator
COPY policies policies
COPY metrics metrics
COPY proxy proxy
COPY spark spark
COPY demo demo
ARG OPTIMIZE=2
ENV GROUP_SIDECAR_REQUIRE_COMPILED=1 GROUP_SIDECAR_OPTIMIZE=${OPTIMIZE}
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir dist . \
 && /opt/build/bin/pip --python /opt/group-sidecar/bin/python install --no-deps --no-index --prefix /opt/project dist/*.whl

# The final images have no compiler and no pip. The base image brings pip for its own Python.
FROM ${BASE} AS runtime
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/group-sidecar --create-home group-sidecar \
 && python -m pip uninstall --yes --quiet setuptools wheel pip \
 && rm -r "$(python -c 'import ensurepip, os; print(os.path.dirname(ensurepip.__file__))')"
ENV PATH=/opt/group-sidecar/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
LABEL org.opencontainers.image.title="kafka-group-sidecar" \
      org.opencontainers.image.description="A proxy beside a Kafka broker that knows its consumer groups" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
USER 10001:10001
WORKDIR /var/lib/group-sidecar
STOPSIGNAL SIGTERM

FROM runtime AS spark
USER 0:0
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=packages-spark /opt/group-sidecar /opt/group-sidecar
COPY --from=build /opt/project /opt/group-sidecar
USER 10001:10001
ENTRYPOINT ["python", "-m", "group_sidecar.spark"]
LABEL org.opencontainers.image.title="kafka-group-sidecar-spark" \
      org.opencontainers.image.description="Aggregates the records of all sidecars with Spark"
ARG SOURCE=""
ARG REVISION=""
LABEL org.opencontainers.image.source="${SOURCE}" org.opencontainers.image.revision="${REVISION}"

FROM runtime AS sidecar
COPY --from=packages /opt/group-sidecar /opt/group-sidecar
COPY --from=build /opt/project /opt/group-sidecar
EXPOSE 9092 9464
HEALTHCHECK --interval=10s --timeout=5s CMD ["group-sidecar", "healthcheck", "--config", "/etc/group-sidecar/sidecar.yaml"]
ENTRYPOINT ["group-sidecar"]
CMD ["run", "--config", "/etc/group-sidecar/sidecar.yaml"]
ARG SOURCE=""
ARG REVISION=""
LABEL org.opencontainers.image.source="${SOURCE}" org.opencontainers.image.revision="${REVISION}"
