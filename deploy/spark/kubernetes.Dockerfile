# An image for kubernetes.sh: Apache Spark's own image, with this project in its Python, which must be 3.11 or later.
#   docker build -f deploy/spark/kubernetes.Dockerfile --build-arg SPARK_IMAGE=... -t kafka-group-sidecar-fleet .
# SPARK_IMAGE: an image of Spark 4.3 with Python. bin/docker-image-tool.sh of Spark's distribution builds one (-p).
ARG SPARK_IMAGE
FROM ${SPARK_IMAGE}
ARG SPARK_UID=185
USER root
COPY . /opt/group-sidecar/source
RUN cd /opt/group-sidecar/source \
 && export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
 && python3 -m pip install --no-build-isolation --require-hashes -r requirements/sidecar.txt \
 && python3 -m pip install --no-build-isolation --require-hashes --target /tmp/build -r requirements/build.txt \
 && PYTHONPATH=/tmp/build python3 -m pip install --no-build-isolation --no-deps . \
 && rm -r /tmp/build \
 && cp /opt/group-sidecar/source/spark/cli.py /opt/group-sidecar/fleet.py
USER ${SPARK_UID}
