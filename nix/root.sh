# An image's root file system, from $debs and $python (files by hash), as docker/$env.Dockerfile makes it.
# Packages are unpacked and not configured: their scripts want users that Nix's sandbox does not have.
mkdir -p $out/usr $out/usr/bin $out/usr/sbin $out/usr/lib $out/usr/lib64 $out/var/lib/dpkg $out/etc
for name in bin sbin lib lib64; do ln -s usr/$name $out/$name; done
unpack() { # a package into a folder
  ar p $1 data.tar.xz > /build/data && [ -s /build/data ] && { xz -d < /build/data | tar -x -o --no-same-permissions -f - -C $2; return; }
  echo "$1 has no data.tar.xz" >&2; exit 1
}
for deb in $debs; do
  unpack $deb $out
  ar p $deb control.tar.xz | xz -d | tar -x -O -f - ./control > /build/control
  { sed 's/^Package:.*/&\nStatus: install ok installed/' /build/control; echo; } >> $out/var/lib/dpkg/status
done
# What the packages' scripts would have made.
echo 'root:x:0:0:root:/root:/bin/sh' > $out/etc/passwd
echo 'root:x:0:' > $out/etc/group
[ -e $out/bin/sh ] || ln -s dash $out/bin/sh
[ ! -e $out/usr/bin/mawk ] || ln -sf mawk $out/usr/bin/awk
[ ! -e $out/usr/bin/g++ ] || { ln -sf g++ $out/usr/bin/c++; ln -sf gcc $out/usr/bin/cc; }
for name in proc dev sys run tmp root opt usr/local/bin etc/alternatives etc/ssl/certs; do mkdir -p $out/$name; done
[ ! -d $out/usr/share/ca-certificates ] || cat $out/usr/share/ca-certificates/*/*.crt > $out/etc/ssl/certs/ca-certificates.crt
rm -rf $out/usr/share/doc $out/usr/share/man $out/usr/share/info $out/usr/share/locale

# Nix lets the builder be root of a namespace of its own, and so chroot.
inside() { # a shell script, with the root file system in $out and /wheels and /nvcc in it
  unshare -U -r -m sh -eu -c '
    mount -o rbind /dev $out/dev
    mount -o rbind /proc $out/proc
    mount -o bind /build/tmp $out/tmp
    chroot $out /bin/sh -eu -c "$1"' sh "export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 TMPDIR=/tmp
$1"
}
mkdir -p /build/tmp/wheels /build/tmp/apart
inside /sbin/ldconfig
rm -rf $out/var/cache/ldconfig

for deb in ${apart:-}; do
  unpack $deb /build/tmp/apart
  echo "nvidia-cuda-toolkit $(ar p $deb control.tar.xz | xz -d | tar -x -O -f - ./control | sed -n 's/^Version: //p')" > $out/opt/unpacked
done
if [ -n "${python:-}" ]; then
  # Nix puts a hash and a hyphen before a file's name.
  for file in $python; do name=${file##*/}; cp $file /build/tmp/wheels/${name#*-}; done
  inside '
    export PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=315532800
    python3 -m venv /opt/venv
    /opt/venv/bin/pip install --quiet --no-index --no-deps --no-compile --no-build-isolation /tmp/wheels/*.whl
    for file in /tmp/wheels/*.tar.gz; do
      [ ! -e $file ] || /opt/venv/bin/pip install --quiet --no-index --no-deps --no-compile --no-build-isolation $file
    done'
fi
[ -z "$steps" ] || inside "$(cat $steps)"
# Bytecode that names no time, so that two builds are equal.
[ ! -x $out/usr/bin/python3 ] || inside '
  find /opt /usr/lib -name __pycache__ -prune -exec rm -rf {} +
  python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt /usr/lib/python3* || true'
