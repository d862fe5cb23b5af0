# docker/measure.Dockerfile: Nsight Compute, whose package is in /tmp/apart, and NVRTC without its alternative.
cd /tmp/apart
dpkg -x *.deb /
ln -s /usr/lib/x86_64-linux-gnu/nsight-compute/target/*/ncu /usr/local/bin/ncu
mkdir /usr/lib/x86_64-linux-gnu/nsight-compute/sections
rm -f /opt/venv/lib/python3*/site-packages/nvidia/cu13/lib/*.alt.so*
