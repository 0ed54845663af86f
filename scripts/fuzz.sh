#!/bin/sh
# usage: fuzz.sh SECONDS: runs every fuzz target of the module for that long, one after the other.
set -eu
seconds=${1:-30}
grep -rl --include='*_test.go' '^func Fuzz' core adapters tools client | sort | while read -r file; do
	dir=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "== $dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "./$dir"
	done
done
