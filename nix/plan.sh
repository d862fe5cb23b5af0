# What the workflow compiles, for which architectures: {toolkit: {kernel: "80,90"}}.
made=/build/made
mkdir $made
inside $root 'python3 /srv/nix/plan.py > /mnt/plan.json'
cp $made/plan.json $out
