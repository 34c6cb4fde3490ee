#!/usr/bin/env bash
# Runs the fleet's stream on Kubernetes: kubernetes.sh INPUT OUTPUT
#
# INPUT and OUTPUT are URLs that the cluster can reach. $CLUSTER is the address of its API server. $IMAGE is an image
# built from kubernetes.Dockerfile. $SERVICE_ACCOUNT is a service account that may create pods. Kubernetes does not
# restart a failed driver. Spark's operator or a job can restart it with the same command, and the stream continues
# where it was.
set -euo pipefail

input=$1 output=$2

exec spark-submit \
    --master "k8s://${CLUSTER:?https://HOST:PORT of the API server}" \
    --deploy-mode cluster \
    --name group-sidecar-fleet \
    --conf spark.kubernetes.container.image="${IMAGE:?an image made by kubernetes.Dockerfile}" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName="${SERVICE_ACCOUNT:-spark}" \
    --conf spark.kubernetes.driver.request.cores=1 \
    --conf spark.kubernetes.executor.request.cores=2 \
    --driver-memory 2g \
    --num-executors 2 \
    --executor-cores 2 \
    --executor-memory 4g \
    --conf spark.sql.shuffle.partitions=8 \
    local:///opt/group-sidecar/fleet.py run --input "$input" --output "$output" --stream --trigger 5m --retention 30d
