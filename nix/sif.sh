# A root file system as a SIF. One thread and no times, so that two builds are equal.
made=/build/made
mkdir $made
code=$root
inside $tools 'unset SOURCE_DATE_EPOCH
mksquashfs /srv /mnt/root.squashfs -quiet -no-progress -comp zstd -Xcompression-level 1 \
  -all-root -mkfs-time 0 -all-time 0 -no-xattrs -processors 1'
cp $pack /build/tmp/pack.py
code=
inside $tools 'python3 /tmp/pack.py sif /mnt/root.squashfs /mnt/image'
mv $made/image $out
chmod 755 $out
