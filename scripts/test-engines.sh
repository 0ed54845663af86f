#!/bin/sh
# usage: scripts/test-engines.sh
#
# Drives the vendors' own clients (npm, pinned, into .cache/engines) against bin/cnd-sim. Without npm, or where its
# registry cannot be reached and nothing is installed yet, the suite is skipped with one line and exit code 0.
set -eu
cd "$(dirname "$0")/.."

skip() {
	echo "test-engines: skipped: $1"
	exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip "no node and npm here"
[ -x bin/cnd-sim ] || {
	echo "test-engines: error: no bin/cnd-sim; run: make build" >&2
	exit 66
}

# install NAME: the package of e2e/engines/NAME, as its lock file says, unless it is there already.
install() {
	from=e2e/engines/$1
	to=.cache/engines/$1
	mkdir -p "$to"
	cp "$from"/*.mjs "$to"/
	if [ -d "$to/node_modules" ] && cmp -s "$from/package-lock.json" "$to/installed.json"; then
		return
	fi
	(cd "$to" && npm ping --fetch-retries=0 --fetch-timeout=10000 >/dev/null 2>&1) || skip "the npm registry cannot be reached"
	cp "$from/package.json" "$from/package-lock.json" "$to"/
	(cd "$to" && npm ci --ignore-scripts --no-audit --no-fund) || {
		rm -rf "$to/node_modules"
		echo "test-engines: error: npm ci in $to" >&2
		exit 70
	}
	cp "$from/package-lock.json" "$to/installed.json"
}

install anthropic-sdk
CND_ENGINES="$PWD/.cache/engines" CND_BIN="$PWD/bin" go test -count=1 ./e2e/engines/...
