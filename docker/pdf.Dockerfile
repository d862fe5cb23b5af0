# Prints the paper: a browser, and the fonts that it falls back to. Only the target `pdf` builds this image.
#                                                       docker build -f docker/pdf.Dockerfile .
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-pdf" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="Prints the report"

RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
