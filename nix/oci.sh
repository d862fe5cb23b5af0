# A root file system as an archive that docker load, podman load and skopeo (oci-archive:) read.
made=/build/made
mkdir $made
code=$root
cp $pack /build/tmp/pack.py
inside $tools "python3 /tmp/pack.py oci /srv /mnt/image gemmrepro-$env $variables"
mv $made/image $out
