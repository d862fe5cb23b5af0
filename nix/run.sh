# run.sh STEP: run a build step with busybox's programs on PATH.
$seed/busybox mkdir -p /build/bin /build/tmp
$seed/busybox --install -s /build/bin
export PATH=/build/bin HOME=/build

# inside ROOT SCRIPT: run a shell script in a root file system, with the folder $code as /srv and $made as /mnt if set.
# Nix lets the builder be root of a namespace of its own, and so mount and chroot. Only what is being built is writable.
inside() {
  folder=$1 script=$2 code=${code:-} made=${made:-} unshare -U -r -m sh -eu -c '
    if [ "$folder" != "$out" ]; then
      mkdir -p /build/root
      mount -o bind $folder /build/root
      mount -o remount,bind,ro $folder /build/root
      folder=/build/root
    fi
    mount -o rbind /dev $folder/dev
    mount -o rbind /proc $folder/proc
    mount -o bind /build/tmp $folder/tmp
    [ -z "$code" ] || mount -o bind $code $folder/srv
    [ -z "$made" ] || mount -o bind $made $folder/mnt
    exec chroot $folder /bin/sh -eu -c "
      for file in /.singularity.d/env/*.sh; do [ ! -e \$file ] || . \$file; done
      export HOME=/tmp TMPDIR=/tmp LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/srv/workflow SOURCE_DATE_EPOCH=315532800
      $script"'
}

. "$1"
