# Claims, figures and the report.                       docker build -f docker/report.Dockerfile .
ARG BASE=debian:12-slim
FROM ${BASE}

RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb

# The secret is the builder's own CA bundle, needed behind a proxy that re-signs TLS; it stays out of the image.
COPY envs/requirements/report.txt /opt/requirements.txt
RUN --mount=type=secret,id=ca_bundle,target=/run/ca_bundle.crt \
    if [ -s /run/ca_bundle.crt ]; then export PIP_CERT=/run/ca_bundle.crt; fi \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r /opt/requirements.txt

ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
