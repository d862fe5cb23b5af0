# A root file system as a SIF, with its Dockerfile's labels where Apptainer looks for them. One thread and no times, so that
# two builds are equal.
made=/build/made
mkdir $made
cp $pack /build/tmp/pack.py
cp $recipe /build/tmp/recipe
code=$root
inside $tools 'python3 /tmp/pack.py labels /tmp/recipe /tmp/labels.json
unset SOURCE_DATE_EPOCH
mksquashfs /srv /mnt/root.squashfs -quiet -no-progress -comp zstd -Xcompression-level 1 \
  -all-root -mkfs-time 0 -all-time 0 -no-xattrs -processors 1 \
  -p ".singularity.d/labels.json f 644 0 0 cat /tmp/labels.json"'
code=
inside $tools 'python3 /tmp/pack.py sif /mnt/root.squashfs /mnt/image'
mv $made/image $out
chmod 755 $out
