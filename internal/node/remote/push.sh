# Takes the agent from stdin. Arguments: directory, name, SHA-256, size.
# Until its digest is proved, the file can't be run, and its name is one that nobody runs. The exit statuses are read by push.go.
LC_ALL=C
export LC_ALL
umask 077
dir=$1 name=$2 sum=$3 size=$4
# Two servers may come at once.
absent() { mkdir "$1" || [ -d "$1" ] || fail 71; }
trap 'fail 70' HUP INT TERM
enter "$dir"
# What a server that died has left, unless another one is still at it.
find . ! -name . -prune -name '.incoming-*' -mmin +60 -exec rm -f -- {} + 2>/dev/null
tmp=$(mktemp ./.incoming-XXXXXXXX) || fail 71
cat >"$tmp" || fail 71
got=$(wc -c <"$tmp") || fail 71
[ "$got" -eq "$size" ] || fail 72 "$got of $size bytes came"
got=$(sha256 <"$tmp") || fail $?
[ "$got" = "$sum" ] || fail 73 "its digest is $got"
# Else a power failure could leave a file that has its name and no content.
sync "$tmp" 2>/dev/null
chmod 0755 "$tmp" || fail 71
answer=$("$tmp" version </dev/null) || fail 74 "it ended with status $?"
case $answer in
*"$sum"*) ;;
*) fail 73 "it does not give its own digest" ;;
esac
[ ! -d "./$name" ] || fail 71 "a directory has the agent's name"
mv -f -- "$tmp" "./$name" || fail 71
# The newest two stay: the one before may still be at work.
ls -t | while read -r old; do
	case $old in
	"$name") ;;
	refit-node-*) n=$((${n:-0} + 1)) && [ "$n" -le 1 ] || rm -f -- "$old" ;;
	esac
done
exit 0
