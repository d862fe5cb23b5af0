# nix fmt: format the given files, or all, with the formatters of the development shell in the root file system $root.
mkdir -p $out/bin
cp $enter $out/enter.sh
cat > $out/bin/gemmrepro-format <<END
#!$seed/busybox sh
export BUSYBOX=$seed/busybox SHELL_BIN=/opt/venv/bin
inside() { $seed/busybox sh $out/enter.sh $root "\$@"; }
# Nix names no file, or from some version on the folder, when it is to be all.
case "\$*" in
  '' | .) inside ruff format . && inside snakefmt Snakefile workflow/rules; exit ;;
esac
for file; do
  case \$file in
    *.py) inside ruff format "\$file" ;;
    *.smk | *Snakefile) inside snakefmt "\$file" ;;
    *) echo "gemmrepro-format: \$file is neither Python nor Snakemake; left as it is" >&2 ;;
  esac || exit
done
END
chmod 755 $out/bin/gemmrepro-format
