# CUDA 12.4: nvcc, cuobjdump, nvdisasm and CuPy.        docker build -f docker/cuda12.Dockerfile .
#
# Debian 12, because glibc 2.41 (Debian 13) declares cospi() and sinpi() in a way that contradicts CUDA 12.4's headers,
# and because g++ 12, its default, is a host compiler that CUDA 12.4 and 13 both accept.
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-cuda12" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="CUDA 12.4: nvcc, cuobjdump, nvdisasm and CuPy"

# NVIDIA's wheels for CUDA 12 hold no nvcc. Debian 13's non-free has CUDA 12.4's in one package, whose programs need
# nothing of Debian 13 to compile: it is unpacked, not installed, from whichever mirror the base image uses.
ARG NVCC_VERSION=12.4.131~12.4.1-2
ARG NVCC_SHA256=cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319
ARG GEMMREPRO_SNAPSHOT
COPY docker/apt-locked nix/sources.json /opt/debian/
RUN sh /opt/debian/apt-locked cuda12 g++ python3 python3-venv \
 && mkdir /tmp/nvcc && cd /tmp/nvcc \
 && sh /opt/debian/apt-locked --apart "trixie non-free" nvidia-cuda-toolkit=$NVCC_VERSION $NVCC_SHA256 \
 && dpkg -x *.deb . \
 && cp -a usr/bin/* /usr/bin/ && mkdir /usr/lib/nvidia-cuda-toolkit \
 && cp -a usr/lib/nvidia-cuda-toolkit/bin usr/lib/nvidia-cuda-toolkit/libdevice /usr/lib/nvidia-cuda-toolkit/ \
 && cp etc/nvcc.profile /etc/nvcc.profile \
 && dpkg-deb --show *.deb > /opt/unpacked \
 && rm -rf /tmp/nvcc /opt/debian /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb

# The secret is the builder's own CA bundle, needed behind a proxy that re-signs TLS; it stays out of the image.
# Compiled modules refer to their source by its hash, not its time, so that two builds make the same files. What tests and
# installs is left out: nothing runs it.
COPY envs/requirements/cuda12.txt /opt/requirements.txt
RUN --mount=type=secret,id=ca_bundle,target=/run/ca_bundle.crt \
    if [ -s /run/ca_bundle.crt ]; then export PIP_CERT=/run/ca_bundle.crt; fi \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --quiet --no-compile --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r /opt/requirements.txt \
 && find /opt/venv -name __pycache__ -prune -exec rm -r {} + \
 && /opt/venv/bin/python -m compileall -q -x "/(tests|pip|setuptools|pkg_resources)/" --invalidation-mode unchecked-hash /opt/venv/lib

# Debian's package leaves CUDA's headers to others; these are the ones of the same CUDA 12.4.
RUN cd /opt/venv/lib/python3*/site-packages/nvidia \
 && for part in cuda_runtime cuda_nvcc cuda_cccl; do \
      echo "INCLUDES += \"-isystem\" \"$PWD/$part/include\" \$(_SPACE_)"; done >> /etc/nvcc.profile

ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
