#!/bin/sh
# Explains what a change in a Git repository makes of machines, and exits with 2 if one would be replaced.
#
#   explain-changes.sh FROM TO PATH [FLAG...]
#
# FROM and TO are commits; TO may be --staged, for what git commit would commit. PATH is the directory with the objects. The flags are refit
# explain's, such as -o markdown. The command is $REFIT, or else refit. It exits with 1 if something can't be read, or PATH is on neither side.
set -eu

from=$1 to=$2 path=$3
shift 3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/from" "$dir/to"

fail() {
	echo "explain-changes.sh: $1" >&2
	exit 1
}

# Writes what a commit has at the path into a directory.
checkout() {
	git rev-parse --verify --quiet "$1^{commit}" >"$dir/commit" || fail "\"$1\" is no commit that is here"
	commit=$(cat "$dir/commit")
	there=$(git ls-tree "$commit" -- "$path")
	if [ -n "$there" ]; then
		git archive --format=tar --output="$dir/tar" "$commit" -- "$path"
		tar -xf "$dir/tar" -C "$2"
	fi
}

# A path that is not there yet, or no more, is nothing.
side() {
	if [ -e "$1/$path" ]; then
		echo "$1/$path"
	else
		echo /dev/null
	fi
}

checkout "$from" "$dir/from"
if [ "$to" = --staged ]; then
	git ls-files -z --cached --full-name -- "$path" >"$dir/staged"
	git checkout-index -z --stdin --prefix="$dir/to/" <"$dir/staged"
else
	checkout "$to" "$dir/to"
fi
[ -e "$dir/from/$path" ] || [ -e "$dir/to/$path" ] || fail "\"$path\" is on neither side"

"${REFIT:-refit}" explain --from "$(side "$dir/from")" --to "$(side "$dir/to")" --fail-on=Replace "$@"
