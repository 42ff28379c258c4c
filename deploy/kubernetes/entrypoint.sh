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
exec "$@"
