#!/bin/sh
# check-library.sh: the shared library shows PEER_* symbols alone, and needs none of the libraries that a machine
# without a GPU lacks, nor C++'s. Run in the build folder, as a line of tests/list.

set -u
library=.libs/libpeercoll.so
if [ ! -e "$library" ]; then
    echo "SKIP: there is no $library (--disable-shared?)"
    exit 77
fi

status=0
shown=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^PEER_')
if [ -n "$shown" ]; then
    echo "symbols that should be hidden: $shown"
    status=1
fi
needed=$(readelf -d "$library" | grep NEEDED | grep -E 'libcuda|libcudart|libnccl|libstdc\+\+')
if [ -n "$needed" ]; then
    echo "libraries that should not be needed: $needed"
    status=1
fi
exit $status
