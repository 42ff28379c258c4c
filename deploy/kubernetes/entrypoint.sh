#!/bin/sh
# Runs the command it is given, with the compiled kernels where they can be used.
#
# Kernels lie in the image, which is read-only. Numba wants to write its cache, so a copy goes to the
# scratch volume of the pod, once.
set -eu
image=${DASKCLUST_IMAGE_CACHE:-/opt/daskclust/numba-cache}
cache=${NUMBA_CACHE_DIR:-${TMPDIR:-/tmp}/numba-cache}
if [ -d "$image" ] && [ "$image" != "$cache" ] && [ ! -d "$cache" ]; then
    # Another container of the pod may do the same: whoever is first gives it its name.
    if ! { cp -R "$image" "$cache.$$" && mv "$cache.$$" "$cache"; } 2>/dev/null; then
        rm -rf "$cache.$$"
    fi
fi
export NUMBA_CACHE_DIR="$cache"
tries=${DASKCLUST_TRIES:-1}
[ "$tries" -gt 1 ] || exec "$@"
# Told to end: so is the command, which names its checkpoint.
child=
trap 'trap "" TERM; kill -TERM $child 2>/dev/null; wait $child; exit 143' TERM
try=1
while :; do
    "$@" &
    child=$!
    code=0
    wait $child || code=$?
    # Arguments (2) do not become right by trying; interrupts and terminations were meant.
    case $code in 0 | 2 | 130 | 143) exit $code ;; esac
    if [ "$try" -ge "$tries" ]; then
        echo "daskclust-entrypoint: code $code in try $try of $tries: given up." >&2
        exit $code
    fi
    pause=$((try * ${DASKCLUST_PAUSE:-10}))
    echo "daskclust-entrypoint: code $code in try $try of $tries; again in $pause s." >&2
    sleep $pause &
    child=$!
    wait $child
    try=$((try + 1))
done
