# The smallest image that a build can list the packages of: what the recipes use, once each.
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-small"

ARG GREETING=hello
ARG GEMMREPRO_SNAPSHOT
COPY docker/apt-locked nix/sources.json /opt/debian/
RUN sh /opt/debian/apt-locked report python3 \
 && rm -rf /opt/debian /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb

COPY LICENSE /opt/license
RUN --mount=type=secret,id=ca_bundle,target=/run/ca_bundle.crt \
    if [ -s /run/ca_bundle.crt ]; then echo "$GREETING, a CA bundle" > /opt/greeting; else echo "$GREETING" > /opt/greeting; fi

ENV GREETED=yes
