# docker/measure.Dockerfile: NVRTC without its alternative.
rm -f /opt/venv/lib/python3*/site-packages/nvidia/cu13/lib/*.alt.so*
