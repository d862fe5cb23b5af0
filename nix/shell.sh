# The development shell's programs: each enters the root file system that holds it. $roots: NAME=folder…
mkdir -p $out/bin $out/libexec
cp $enter $out/libexec/enter.sh
cp $start $out/libexec/gemmrepro.sh
for root in $roots; do eval "${root%%=*}=${root#*=}"; done

program() { # NAME ROOT PATH: a program in one root
  cat > $out/bin/$1 <<END
#!$seed/busybox sh
export BUSYBOX=$seed/busybox SHELL_BIN=$out/bin
exec $seed/busybox sh $out/libexec/enter.sh $2 $3 "\$@"
END
}
for name in snakemake pytest mypy ruff snakefmt pre-commit; do program $name $host /opt/venv/bin/$name; done
for name in nvcc cuobjdump nvdisasm; do program $name $cuda13 /usr/local/cuda/bin/$name; done
for name in git g++ gcc; do program $name $host /usr/bin/$name; done

for name in $(ls $apptainer/bin); do ln -s $apptainer/bin/$name $out/bin/$name; done

# A compiling stage runs with the toolkit that it asks for, and an experiment on the CPU with PyTorch, as their rules'
# containers would have it.
cat > $out/bin/python3 <<END
#!$seed/busybox sh
export BUSYBOX=$seed/busybox SHELL_BIN=$out/bin
root=$host python=/opt/venv/bin/python3
case "\$* " in
  *" --toolkit cuda12 "*) root=$cuda12 ;;
  *" --toolkit cuda13 "*) root=$cuda13 ;;
  "-m gemmrepro experiments "*) root=$torchcpu python=/usr/bin/python3 ;;
esac
# Its own compilers shall be found there.
[ \$root = $host ] || SHELL_BIN=\${python%/*}
exec $seed/busybox sh $out/libexec/enter.sh \$root \$python "\$@"
END
ln -s python3 $out/bin/python

# nix run: the workflow in the checkout that is the current folder.
cat > $out/bin/gemmrepro <<END
#!$seed/busybox sh
exec $seed/busybox sh $out/libexec/gemmrepro.sh $out/bin/snakemake "\$@"
END
chmod 755 $out/bin/*
