# docker/cuda13.Dockerfile: CUDA's tree where tools expect it.
ln -s /opt/venv/lib/python3*/site-packages/nvidia/cu13 /usr/local/cuda
