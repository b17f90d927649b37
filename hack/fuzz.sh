#!/bin/bash
# Runs every fuzz target of the module, one after the other, each for FUZZTIME (1m). It ends at the first finding, which
# go test has then written to the package's testdata/fuzz: commit it with the repair.
set -euo pipefail
cd "$(dirname "$0")/.."

grep --recursive --include='*_test.go' --exclude-dir=tools '^func Fuzz' . | sort |
	sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' |
	while read -r package target; do
		echo "== $package $target"
		go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-1m}" "$package" </dev/null
	done
