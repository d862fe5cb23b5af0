# Apptainer with its libraries and tools ($debs, and $apart: its own package), as programs that run from the store on any
# host, as envs/run makes its private copy.
mkdir -p $out
for deb in $debs $apart; do
  ar p $deb data.tar.xz | xz -d | tar -x -o --no-same-permissions -f - -C $out
done
# Debian 13 has no /lib; a package of another release may.
[ ! -d $out/lib ] || [ -L $out/lib ] || { cp -a $out/lib/. $out/usr/lib/; rm -r $out/lib; }
rm -rf $out/usr/share $out/usr/lib/*/gconv $out/usr/sbin/* $out/var/lib/dpkg
libraries=$(dirname $(dirname $(dirname $out/usr/lib/*/apptainer/bin/starter)))
# Its programs look for etc and var beside themselves: apptainer in usr, starter in usr/lib.
ln -s ../etc ../var $out/usr/
ln -s ../../etc ../../var $out/usr/lib/
mkdir -p $out/var/lib/apptainer/mnt/session $out/bin
# The development shell's root file system has neither of these files.
sed -i -e '/^bind path = \/etc\/\(hosts\|localtime\)/d' -e 's/^config resolv_conf = yes/config resolv_conf = no/' \
  $out/etc/apptainer/apptainer.conf
cp -a $out /build/made
made=/build/made
inside $tools "
  for program in /mnt${libraries#$out}/apptainer/bin/starter /mnt/usr/bin/*; do
    [ -L \$program ] || ! patchelf --print-interpreter \$program >/dev/null 2>&1 ||
      patchelf --set-interpreter $(ls $libraries/ld-linux*.so.*) --force-rpath --set-rpath $libraries \$program
  done"
rm -rf $out
cp -a /build/made $out
for program in apptainer mksquashfs unsquashfs squashfuse squashfuse_ll fuse-overlayfs fuse2fs gocryptfs; do
  [ ! -e $out/usr/bin/$program ] || ln -s ../usr/bin/$program $out/bin/
done
ln -s apptainer $out/bin/singularity # the name that Snakemake calls it by
