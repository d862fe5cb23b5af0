# A root file system as an archive that docker load, podman load and skopeo (oci-archive:) read.
made=/build/made
mkdir $made
code=$root
cp $pack /build/tmp/pack.py
cp $recipe /build/tmp/recipe
inside $tools "python3 /tmp/pack.py oci /srv /mnt/image gemmrepro-$env /tmp/recipe $variables"
mv $made/image $out
