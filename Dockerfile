# Two images from one file:
#   docker build --target sidecar -t kafka-group-sidecar .         the proxy, no JVM
#   docker build --target spark   -t kafka-group-sidecar-spark .   the fleet pipeline, with Java 17
FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
RUN python -m venv /opt/group-sidecar
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY group_sidecar group_sidecar
COPY codecs codecs
COPY coordinator coordinator
COPY policies policies
COPY metrics metrics
COPY proxy proxy
COPY spark spark
COPY demo demo
RUN /opt/group-sidecar/bin/pip install --no-cache-dir -c constraints.txt .

FROM build AS build-spark
RUN /opt/group-sidecar/bin/pip install --no-cache-dir -c constraints.txt '.[spark]'

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
