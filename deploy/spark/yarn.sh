#!/usr/bin/env bash
# Runs the fleet's stream on YARN: yarn.sh INPUT OUTPUT
#
# INPUT and OUTPUT are URLs that the cluster can reach. $ENVIRONMENT is an archive of a virtual environment in which
# this project is installed (venv-pack makes one). YARN restarts a failed driver at most four times an hour. An
# interrupted batch is repeated.
set -euo pipefail

input=$1 output=$2
application=$(dirname "$0")/../../spark/cli.py

exec spark-submit \
    --master yarn \
    --deploy-mode cluster \
    --name group-sidecar-fleet \
    --archives "${ENVIRONMENT:?an archive of the virtual environment}#environment" \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.yarn.maxAppAttempts=4 \
    --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
    --driver-memory 2g \
    --num-executors 2 \
    --executor-cores 2 \
    --executor-memory 4g \
    --conf spark.sql.shuffle.partitions=8 \
    "$application" run --input "$input" --output "$output" --stream --trigger 5m --retention 30d
