# enter.sh ROOT COMMAND…: run a command in a root file system of the store; the host's other folders stay where they are.
# Needs user namespaces, and no privileges: the command sees its user as root, and its files are the user's.
root=$1
shift
exec "$BUSYBOX" unshare -U -r -m "$BUSYBOX" sh -eu -c '
  root=$1 here=$PWD
  shift
  busybox() { "$BUSYBOX" "$@"; }
  new=/tmp/.gemmrepro-root-$(busybox id -u)
  busybox mkdir -p $new
  busybox mount -t tmpfs tmpfs $new
  for path in /*; do
    name=${path#/}
    case $name in
      bin | sbin | lib* | usr | opt | etc) ;;
      *) [ ! -d $path ] || { busybox mkdir -p $new/$name; busybox mount -o rbind $path $new/$name; } ;;
    esac
  done
  for path in $root/* $root/.singularity.d; do
    name=${path##*/}
    if [ -L $path ]; then busybox cp -P $path $new/$name
    elif [ ! -e $new/$name ]; then busybox mkdir $new/$name; busybox mount -o bind $path $new/$name; fi
  done
  # Not chroot, in which no further user namespace may be made: a program started here enters its own root as well.
  cd $new
  busybox mkdir .host
  busybox pivot_root . .host
  busybox umount -l /.host
  exec /bin/sh -eu -c "
    for file in /.singularity.d/env/*.sh; do . \$file; done
    export PATH=$SHELL_BIN:\$PATH LC_ALL=C.UTF-8
    cd \"\$1\"
    shift
    exec \"\$@\"" sh "$here" "$@"' sh "$root" "$@"
