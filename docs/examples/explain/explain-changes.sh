#!/bin/sh
# Explains what a change in a Git repository makes of machines, and exits with 2 if one would be replaced.
#
#   explain-changes.sh FROM TO PATH [FLAG...]
#
# FROM and TO are commits; TO may be --staged, for what git commit would commit. PATH is the directory with the objects. The flags are refit
# explain's, such as -o markdown. The command is $REFIT, or else refit.
set -eu

from=$1 to=$2 path=$3
shift 3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/from/$path" "$dir/to/$path"

# A directory that is not there yet, or no more, is an empty one.
checkout() {
	if [ -n "$(git ls-tree "$1" -- "$path")" ]; then
		git archive --format=tar "$1" -- "$path" | tar -xf - -C "$2"
	fi
}

checkout "$from" "$dir/from"
if [ "$to" = --staged ]; then
	git ls-files -z --cached --full-name -- "$path" | git checkout-index -z --stdin --prefix="$dir/to/"
else
	checkout "$to" "$dir/to"
fi

"${REFIT:-refit}" explain --from "$dir/from/$path" --to "$dir/to/$path" --fail-on=Replace "$@"
