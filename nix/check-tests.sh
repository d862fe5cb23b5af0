# The unit tests that need no container, in a copy of the repository.
cp -r $code /build/tmp/gemmrepro
chmod -R u+w /build/tmp/gemmrepro
code=
inside $root "cd /tmp/gemmrepro
git init --quiet
git add --all
python3 -m pytest -q -p no:cacheprovider -n \$(nproc) --dist worksteal -m 'not containers' tests/unit"
echo passed > $out
