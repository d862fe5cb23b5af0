# The development shell's programs: each enters the root file system that holds it. $roots: NAME=folder…
mkdir -p $out/bin $out/libexec
cp $enter $out/libexec/enter.sh
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

# A compiling stage runs with the toolkit that it asks for, as its rule's container would have it.
cat > $out/bin/python3 <<END
#!$seed/busybox sh
export BUSYBOX=$seed/busybox SHELL_BIN=$out/bin
root=$host
case "\$* " in
  *" --toolkit cuda12 "*) root=$cuda12 ;;
  *" --toolkit cuda13 "*) root=$cuda13 ;;
esac
# The toolkit's own nvcc shall be found there.
[ \$root = $host ] || SHELL_BIN=/opt/venv/bin
exec $seed/busybox sh $out/libexec/enter.sh \$root /opt/venv/bin/python3 "\$@"
END
ln -s python3 $out/bin/python

# nix run: the workflow in the checkout that is the current folder.
cat > $out/bin/gemmrepro <<END
#!$seed/busybox sh
if [ ! -e workflow/Snakefile ]; then
  echo "gemmrepro: this is no checkout of gemmrepro; git clone it and start nix run there." >&2
  exit 1
fi
case " \$* " in
  *" --help "* | *" -h "* | *" --version "*) exec $out/bin/snakemake "\$@" ;;
  *" --cores "* | *" -c"*) ;;
  *) set -- --cores 1 "\$@" ;;
esac
# PyTorch's experiments on the CPU need its image: here they are taken from the recordings, as all measurements are.
case " \$* " in
  *" --config "* | *" -C "*) exec $out/bin/snakemake "\$@" ;;
  *) exec $out/bin/snakemake "\$@" --config measure=recorded ;;
esac
END
chmod 755 $out/bin/*
