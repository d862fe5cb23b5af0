# The kernel's build key is the one that recordings are filed under.
made=$(sed -n 's/.*"build_key": "\([0-9a-f]*\)".*/\1/p' $built/$kernel.json)
[ "$made" = "$recorded" ] || { echo "$kernel, $toolkit: build key $made, recorded under $recorded" >&2; exit 1; }
echo $made > $out
