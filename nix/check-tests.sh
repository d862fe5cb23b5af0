# The unit tests $tests, in a copy of the repository.
cp -r $code /build/tmp/gemmrepro
chmod -R u+w /build/tmp/gemmrepro
code=
inside $root "cd /tmp/gemmrepro
python3 -m pytest -q -p no:cacheprovider -p no:xdist $tests"
echo passed > $out
