# Prints the paper: a browser, the fonts that it falls back to, and the Python that lists what is in an image. Only the
# target `pdf` builds it.
#                                                       docker build -f docker/pdf.Dockerfile .
ARG BASE=debian:12-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-pdf" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="Prints the report"

RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
