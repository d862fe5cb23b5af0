# docker/torch.Dockerfile: Nsight Compute, whose package is in /tmp/apart.
cd /tmp/apart
dpkg -x *.deb /
ln -s /usr/lib/x86_64-linux-gnu/nsight-compute/target/*/ncu /usr/local/bin/ncu
mkdir /usr/lib/x86_64-linux-gnu/nsight-compute/sections
