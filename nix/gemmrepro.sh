# gemmrepro.sh SNAKEMAKE ARGUMENT…: the workflow in the checkout that is the current folder, as `nix run` starts it. The GPU
# is not visible there, so measurements come from the recordings unless the arguments set `measure` themselves.
snakemake=$1
shift
if [ ! -e Snakefile ]; then
  echo "gemmrepro: this is no checkout of gemmrepro; git clone it and start nix run there." >&2
  exit 1
fi
cores= measure=
for word; do
  case $word in
    --help | -h | --version | -v) exec "$snakemake" "$@" ;;
    --cores | --cores=* | -c*) cores=given ;;
    measure=* | --config=measure=* | -Cmeasure=*) measure=given ;;
    --) break ;;
  esac
done
[ -n "$cores" ] || set -- --cores 1 "$@"
[ -z "$measure" ] || exec "$snakemake" "$@"

# Of several --config Snakemake takes the last alone, so each gets the setting.
left=$# recorded= targets=
while [ $left -gt 0 ]; do
  word=$1
  left=$((left - 1))
  shift
  case $targets$word in
    --config | -C)
      set -- "$@" --config measure=recorded
      recorded=yes
      ;;
    --config=* | -C?*) # This form takes one setting. An option that profiles/default has, too, ends the list.
      word=${word#-C}
      set -- "$@" --config measure=recorded "${word#--config=}" --rerun-incomplete
      recorded=yes
      ;;
    --)
      [ -n "$recorded" ] || set -- "$@" --config measure=recorded
      set -- "$@" --
      recorded=yes targets=yes
      ;;
    *) set -- "$@" "$word" ;;
  esac
done
[ -n "$recorded" ] || set -- "$@" --config measure=recorded
exec "$snakemake" "$@"
