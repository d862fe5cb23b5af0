# Live measurement: CuPy and cuBLAS for the baselines, cuda.core to launch kernels, CUPTI for counters.
# Only a machine with a GPU builds it.                  docker build -f docker/measure.Dockerfile .
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-measure" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="Live measurement: CuPy, cuBLAS, cuda.core and CUPTI"

ARG GEMMREPRO_SNAPSHOT
COPY docker/apt-locked nix/sources.json /opt/debian/
RUN sh /opt/debian/apt-locked measure python3 python3-venv \
 && rm -rf /opt/debian /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb

# The secret is the builder's own CA bundle, needed behind a proxy that re-signs TLS; it stays out of the image.
# Compiled modules refer to their source by its hash, not its time, so that two builds make the same files. What tests and
# installs is left out: nothing runs it. NVRTC has an alternative library of 110 MB beside it, without which it compiles for
# every architecture from 7.5 on as well.
COPY envs/requirements/measure.txt /opt/requirements.txt
RUN --mount=type=secret,id=ca_bundle,target=/run/ca_bundle.crt \
    if [ -s /run/ca_bundle.crt ]; then export PIP_CERT=/run/ca_bundle.crt; fi \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --quiet --no-compile --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r /opt/requirements.txt \
 && rm -f /opt/venv/lib/python3*/site-packages/nvidia/cu13/lib/*.alt.so* \
 && find /opt/venv -name __pycache__ -prune -exec rm -r {} + \
 && /opt/venv/bin/python -m compileall -q -x "/(tests|pip|setuptools|pkg_resources)/" --invalidation-mode unchecked-hash /opt/venv/lib

ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
