#!/bin/bash
# One daskclust fit on a list of machines that share a folder: the scheduler-file pattern.
#
#   DASKCLUST_RUN=/shared/runs/scene1 DASKCLUST_HOSTS=hosts.txt ./daskclust.sh fit scene.zarr ...
#
# hosts.txt has a machine a line, one line for each worker. Without it all workers run here
# (DASKCLUST_WORKERS of them). The same command, started again, goes on from its checkpoint.
set -u
run=${DASKCLUST_RUN:?set it to a folder that all machines see, the same for every start}
command=${1:?give a daskclust command: fit CUBE ... or predict CUBE ...}
shift
[ -n "${DASKCLUST_VENV:-}" ] && PATH=$DASKCLUST_VENV/bin:$PATH
mkdir -p "$run" || exit 2
if [ -e "$run/finished" ]; then
    echo "Finished before: $run/finished is there. Remove it to run again."
    exit 0
fi
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$run/numba-cache}
mkdir -p "$NUMBA_CACHE_DIR"
host=${DASKCLUST_HOST:-$(hostname -I | awk '{print $1}')}
remote=${DASKCLUST_REMOTE:-ssh}
memory=${DASKCLUST_WORKER_MEMORY:-auto}
scratch=${DASKCLUST_SCRATCH:-${TMPDIR:-/tmp}}/daskclust-$$

file=$run/scheduler-$$.json
rm -f "$file"
dask scheduler --host "$host" --port 0 --no-dashboard --scheduler-file "$file" \
    >>"$run/scheduler.log" 2>&1 &
scheduler=$!
workers=()
fit=
# shellcheck disable=SC2329  # called by a trap
stop_cluster() {
    # The scheduler first: workers, wherever they are, end when it has gone (--death-timeout).
    kill "$scheduler" ${workers[@]+"${workers[@]}"} 2>/dev/null
    wait
    rm -rf "$file" "$scratch"
}
trap stop_cluster EXIT
trap 'kill -TERM "$fit" 2>/dev/null; wait "$fit"; exit 143' TERM
trap 'kill -INT "$fit" 2>/dev/null; wait "$fit"; exit 130' INT
until [ -s "$file" ]; do
    if ! kill -0 "$scheduler" 2>/dev/null; then
        echo "The scheduler did not start; its last words in $run/scheduler.log:" >&2
        tail -n 5 "$run/scheduler.log" >&2
        exit 1
    fi
    sleep 0.5
done

worker=(dask worker --scheduler-file "$file" --nthreads 1 --memory-limit "$memory"
    --local-directory "$scratch" --no-dashboard --death-timeout 60)
if [ -z "${DASKCLUST_HOSTS:-}" ]; then
    for _ in $(seq "${DASKCLUST_WORKERS:-2}"); do
        "${worker[@]}" >>"$run/workers.log" 2>&1 &
        workers+=($!)
    done
else
    # What the machines need of this environment, in words that a shell there reads.
    printf -v there 'export PATH=%q OMP_NUM_THREADS=1 NUMBA_CACHE_DIR=%q; exec' "$PATH" \
        "$NUMBA_CACHE_DIR"
    printf -v call ' %q' "${worker[@]}"
    number=0
    while read -r machine _; do
        case $machine in '' | \#*) continue ;; esac
        if [ "$remote" = pbsdsh ]; then
            pbsdsh -n "$number" -- bash -c "$there$call" >>"$run/workers.log" 2>&1 </dev/null &
        else
            "$remote" -o BatchMode=yes "$machine" "bash -c '$there$call'" \
                >>"$run/workers.log" 2>&1 </dev/null &
        fi
        workers+=($!)
        number=$((number + 1))
    done <"$DASKCLUST_HOSTS"
fi

more=(--scheduler-file "$file")
[ "$command" = fit ] && more+=(--checkpoint "$run/checkpoint.npz")
daskclust "$command" "$@" "${more[@]}" &
fit=$!
wait "$fit"
code=$?
if [ $code = 0 ]; then
    date -Is >"$run/finished"
    rm -f "$run/checkpoint.npz"
fi
exit $code
