#!/bin/sh
# Compute the fingerprints of the test vectors without any of our programs: usage: fingerprint-vectors.sh DIR
#
# Reads DIR/fingerprints.tsv (docs/formats/fingerprint.md) and writes it anew to stdout: the body of each vector is a
# file in DIR, everything else stands in its line. Both are the same when fingerprints are what the document says.
set -eu
tab=$(printf '\t')
if command -v sha256sum >/dev/null; then sha=sha256sum; else sha='shasum -a 256'; fi

cd "$1"
while IFS=$tab read -r _ file builder method url headers; do
	body=$($sha <"$file" | cut -c 1-64)
	fingerprint=$({
		printf 'cnd/request/v0\n%s\n%s\n%s\n' "$builder" "$method" "$url"
		[ -z "$headers" ] || printf '%s\n' "$headers" | tr '\t' '\n'
		printf '%s' "$body"
	} | $sha | cut -c 1-64)
	printf '%s\t%s\t%s\t%s\t%s' "$fingerprint" "$file" "$builder" "$method" "$url"
	[ -z "$headers" ] || printf '\t%s' "$headers"
	printf '\n'
done <fingerprints.tsv
