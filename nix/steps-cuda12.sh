# docker/cuda12.Dockerfile: a few files of nvcc's package, which is in /tmp/apart, and the headers' places.
cd /tmp/apart
dpkg -x *.deb .
cp -a usr/bin/* /usr/bin/
mkdir /usr/lib/nvidia-cuda-toolkit
cp -a usr/lib/nvidia-cuda-toolkit/bin usr/lib/nvidia-cuda-toolkit/libdevice /usr/lib/nvidia-cuda-toolkit/
cp etc/nvcc.profile /etc/nvcc.profile
cd /opt/venv/lib/python3*/site-packages/nvidia
for part in cuda_runtime cuda_nvcc cuda_cccl; do
  echo "INCLUDES += \"-isystem\" \"$PWD/$part/include\" \$(_SPACE_)"
done >> /etc/nvcc.profile
