# PyTorch without CUDA, and the compiler that torch.compile wants: what of PyTorch's measurements needs no GPU.
# PyPI's wheels for Linux are built for CUDA and do not load without 3 GB of its libraries; Debian's package is built
# for the CPU alone.                                    docker build -f docker/torchcpu.Dockerfile .
ARG BASE=debian:13-slim
FROM ${BASE}
LABEL org.opencontainers.image.title="gemmrepro-torchcpu" org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.description="PyTorch for the CPU alone, and the compiler that torch.compile wants"

# torch.compile writes C++ and compiles it against the headers of Python and PyTorch; OpenBLAS is a BLAS that is tuned.
# What is taken away again: PyTorch's own tests, and a compiler for AMD's GPUs that only a plug-in of MPI asks for.
ARG GEMMREPRO_SNAPSHOT
COPY docker/apt-locked nix/sources.json /opt/debian/
RUN sh /opt/debian/apt-locked torchcpu g++ libopenblas0-pthread libtorch-dev \
      python3-jsonschema python3-pandas python3-scipy python3-setuptools python3-torch python3-yaml \
 && dpkg --force-depends --purge libtorch-test libllvm17t64 libamd-comgr2 libamdhip64-5 \
 && rm -rf /usr/lib/python3/dist-packages/torch/bin/test_* /usr/lib/python3.*/config-*/*.a /usr/bin/*lto-dump* \
 && rm -rf /opt/debian /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
