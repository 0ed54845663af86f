#!/bin/sh
# usage: check-sh.sh: every shell script of the project parses and fails on the first error.
set -eu
for script in scripts/*.sh .ci/run; do
	case $script in
	.ci/run) bash -n "$script" ;;
	*) sh -n "$script" ;;
	esac
	grep -q '^set -eu' "$script" || {
		echo "$script: does not say set -eu" >&2
		exit 1
	}
done
