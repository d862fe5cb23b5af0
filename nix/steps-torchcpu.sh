# docker/torchcpu.Dockerfile: without PyTorch's tests, static libraries of Python and the dump of link-time code.
rm -rf /usr/lib/python3/dist-packages/torch/bin/test_* /usr/lib/python3.*/config-*/*.a /usr/bin/*lto-dump*
