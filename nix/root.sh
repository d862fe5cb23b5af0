# An image's root file system from $debs and $python (files by hash), as its Dockerfile makes it. $variables: its ENV.
# Packages are unpacked and not configured: their scripts want users that Nix's sandbox does not have.
mkdir -p $out/usr $out/usr/bin $out/usr/sbin $out/usr/lib $out/usr/lib64 $out/var/lib/dpkg $out/etc
for name in bin sbin lib lib64; do ln -s usr/$name $out/$name; done
unpack() { # a package into a folder
  ar p $1 data.tar.xz > /build/data
  [ -s /build/data ] || { echo "$1 has no data.tar.xz" >&2; exit 1; }
  xz -d < /build/data | tar -x -o --no-same-permissions -f - -C $2
}
control() { # a package's description; a few old packages have it as gz
  case $(ar t $1) in
    *control.tar.gz*) ar p $1 control.tar.gz | gzip -d ;;
    *) ar p $1 control.tar.xz | xz -d ;;
  esac | tar -x -O -f - ./control
}
field() { # a field of a package's description
  control $1 | sed -n "s/^$2: //p"
}
for deb in $debs; do
  unpack $deb $out
  control $deb > /build/control
  { sed 's/^Package:.*/&\nStatus: install ok installed/' /build/control; echo; } >> $out/var/lib/dpkg/status
done

# What the packages' scripts would have made.
for name in proc dev sys run tmp root opt srv mnt usr/local/bin etc/alternatives etc/ssl/certs; do mkdir -p $out/$name; done
echo 'root:x:0:0:root:/root:/bin/sh' > $out/etc/passwd
echo 'root:x:0:' > $out/etc/group
[ -e $out/bin/sh ] || ln -s dash $out/bin/sh
[ ! -e $out/usr/bin/which.debianutils ] || ln -sf which.debianutils $out/usr/bin/which
[ ! -e $out/usr/bin/mawk ] || ln -sf mawk $out/usr/bin/awk
for file in $out/usr/lib/x86_64-linux-gnu/openblas-pthread/lib*.so.[0-9]; do
  [ ! -e $file ] || ln -sf openblas-pthread/${file##*/} $out/usr/lib/x86_64-linux-gnu/
done
[ ! -e $out/usr/bin/g++ ] || { ln -sf g++ $out/usr/bin/c++; ln -sf gcc $out/usr/bin/cc; }
[ ! -d $out/usr/share/ca-certificates ] ||
  cat $out/usr/share/ca-certificates/*/*.crt > $out/etc/ssl/certs/ca-certificates.crt
# What the slim images leave out, too.
rm -rf $out/usr/share/doc $out/usr/share/man $out/usr/share/info $out/usr/share/locale

# Its environment, where Apptainer looks for it.
mkdir -p $out/.singularity.d/env
for variable in $variables; do
  case $variable in
    PATH=*) echo "export $variable" ;;
    *) echo "export ${variable%%=*}=\"\${${variable%%=*}:-${variable#*=}}\"" ;;
  esac
done > $out/.singularity.d/env/10-docker2singularity.sh

mkdir -p /build/tmp/wheels /build/tmp/apart
inside $out /sbin/ldconfig
rm -rf $out/var/cache/ldconfig
for deb in $apart; do # which the image's steps unpack
  cp $deb /build/tmp/apart/
  echo "$(field $deb Package) $(field $deb Version)" >> $out/opt/unpacked
done
if [ -n "$python" ]; then
  # Nix puts a hash and a hyphen before a file's name.
  for file in $python; do name=${file##*/}; cp $file /build/tmp/wheels/${name#*-}; done
  inside $out '
    /usr/bin/python3 -m venv /opt/venv
    pip="/opt/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-index --no-deps --no-compile"
    $pip /tmp/wheels/*.whl
    for file in /tmp/wheels/*.tar.gz; do
      [ ! -e $file ] || $pip --no-build-isolation $file
    done'
fi
if [ -n "$steps" ]; then cp $steps /build/tmp/steps; inside $out '. /tmp/steps'; fi
# Bytecode that names no time, so that two builds are equal. Not of the packages' own tests, which take longer than the
# packages themselves.
if [ -x $out/usr/bin/python3 ]; then
  inside $out '
    find /opt /usr/lib -name __pycache__ -prune -exec rm -rf {} +
    python3 -m compileall -q -x /tests/ --invalidation-mode unchecked-hash /opt /usr/lib/python3* || true'
fi
