#!/bin/bash
# Submit a chain of jobs for one fit, where requeueing is not allowed.
#
#   DASKCLUST_RUN=/shared/runs/scene1 ./chain.sh 5 [sbatch options --] fit scene.zarr ...
#
# Each job starts when the one before has ended, and goes on from its checkpoint. Jobs behind the
# one that finishes find $DASKCLUST_RUN/finished and end at once.
set -eu
: "${DASKCLUST_RUN:?set it to a folder on a shared file system that is the same for every job}"
links=${1:?give the number of jobs}
shift
options=()
for word in "$@"; do
    if [ "$word" = -- ]; then
        while [ "$1" != -- ]; do
            options+=("$1")
            shift
        done
        shift
        break
    fi
done
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
before=
for _ in $(seq "$links"); do
    after=()
    [ -n "$before" ] && after=(--dependency="afterany:$before")
    before=$(DASKCLUST_REQUEUE=no sbatch --parsable --no-requeue ${after[@]+"${after[@]}"} \
        ${options[@]+"${options[@]}"} "$here/daskclust.sbatch" "$@")
    echo "$before"
done
