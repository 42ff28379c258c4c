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
[ -n "${DASKCLUST_VENV:-}" ] && PATH=$DASKCLUST_VENV/bin:$PATH
mkdir -p "$run" || exit 2
# What was finished here, or is under way, must be this command and no other.
asked=$(printf '%q ' "$@")
exec 9>>"$run/lock"
if command -v flock >/dev/null; then
    busy=0
    patience=(--nonblock)
    # A run that has finished only stops its cluster.
    [ -e "$run/finished" ] && patience=(--wait 60)
    flock "${patience[@]}" --conflict-exit-code 75 9 2>/dev/null || busy=$?
    if [ "$busy" = 75 ]; then
        echo "Under way: $run is used by $(tail -n 1 "$run/lock"). Wait for it, or set another DASKCLUST_RUN." >&2
        exit 2
    fi
fi
echo "process $$ on $(hostname), since $(date -Is)" >"$run/lock"
if [ -e "$run/finished" ]; then
    done=$(tail -n +2 "$run/finished")
    if [ "$done" != "$asked" ]; then
        echo "Finished before, with other arguments: $run/finished says '$done', not '$asked'." \
            "Set another DASKCLUST_RUN, or remove that file to run again." >&2
        exit 2
    fi
    missing=
    before=
    for word in "$@"; do
        place=
        case $word in --output=* | --model=* | --report=*) place=${word#*=} ;; esac
        case $before in --output | --model | --report) place=$word ;; esac
        before=$word
        case $place in
            *://* | "") ;;
            *) [ -e "${place/#\~\//${HOME:-~}/}" ] || missing=$place ;;
        esac
    done
    if [ -z "$missing" ]; then
        echo "Finished before: $run/finished is there. Remove it to run again, as when the scene has changed."
        exit 0
    fi
    echo "Finished before, but $missing is gone: running again."
    rm -f "$run/finished"
fi
shift
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Kernels are compiled once, by one process, beside the package or in the home folder.
if [ -n "${DASKCLUST_SHARED:-}" ]; then
    export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$DASKCLUST_SHARED/numba-cache}
    mkdir -p "$NUMBA_CACHE_DIR"
fi
daskclust doctor --compile >>"$run/compile.log" 2>&1 9>&- || echo "daskclust doctor --compile failed: see $run/compile.log" >&2
host=${DASKCLUST_HOST:-$(hostname -I | awk '{print $1}')}
remote=${DASKCLUST_REMOTE:-ssh}
memory=${DASKCLUST_WORKER_MEMORY:-auto}
scratch=${DASKCLUST_SCRATCH:-${TMPDIR:-/tmp}}/daskclust-$$

file=$run/scheduler-$$.json
rm -f "$file"
dask scheduler --host "$host" --port 0 --no-dashboard --scheduler-file "$file" \
    >>"$run/scheduler.log" 2>&1 9>&- &
scheduler=$!
workers=()
fit=
# shellcheck disable=SC2317,SC2329  # called by a trap
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
        "${worker[@]}" >>"$run/workers.log" 2>&1 9>&- &
        workers+=($!)
    done
else
    # What the machines need of this environment, in words that a shell there reads.
    printf -v there 'export PATH=%q OMP_NUM_THREADS=1' "$PATH"
    [ -n "${NUMBA_CACHE_DIR:-}" ] && printf -v there '%s NUMBA_CACHE_DIR=%q' "$there" "$NUMBA_CACHE_DIR"
    there+="; exec"
    printf -v call ' %q' "${worker[@]}"
    number=0
    while read -r machine _; do
        case $machine in '' | \#*) continue ;; esac
        if [ "$remote" = pbsdsh ]; then
            pbsdsh -n "$number" -- bash -c "$there$call" >>"$run/workers.log" 2>&1 </dev/null 9>&- &
        else
            "$remote" -o BatchMode=yes "$machine" "bash -c '$there$call'" \
                >>"$run/workers.log" 2>&1 </dev/null 9>&- &
        fi
        workers+=($!)
        number=$((number + 1))
    done <"$DASKCLUST_HOSTS"
fi

more=(--scheduler-file "$file")
[ "$command" = fit ] && more+=(--checkpoint "$run/checkpoint.npz")
daskclust "$command" "$@" "${more[@]}" 9>&- &
fit=$!
wait "$fit"
code=$?
if [ $code = 0 ]; then
    printf '%s\n%s\n' "$(date -Is)" "$asked" >"$run/finished.new"
    mv "$run/finished.new" "$run/finished"
    rm -f "$run/checkpoint.npz"
fi
exit $code
