# Prints the paper: a browser, the fonts that it falls back to, and the Python that lists what is in an image. Only the
# target `pdf` builds it.
#                                                       docker build -f docker/pdf.Dockerfile .
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-pdf" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="Prints the report"

ARG GEMMREPRO_SNAPSHOT
COPY docker/apt-locked nix/sources.json /opt/debian/
RUN sh /opt/debian/apt-locked pdf chromium fonts-dejavu-core python3 \
 && rm -rf /opt/debian /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
