# Compile a kernel in its toolkit's root file system: $out holds what results/build/<toolkit>/ would.
mkdir -p $out
made=$out
inside $root "export GEMMREPRO_TUNED=$tuned
python3 -m gemmrepro build --kernels $kernel=$architectures --toolkit $toolkit --out /mnt"
