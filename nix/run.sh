# run.sh STEP: run a build step with busybox's programs on PATH.
$seed/busybox mkdir -p /build/bin
$seed/busybox --install -s /build/bin
export PATH=/build/bin HOME=/build
. "$1"
