# Runs the agent. Arguments: path, SHA-256, verb. What is executed was found to be what was brought, in a directory in
# which nobody else can exchange it meanwhile. The exit statuses are read by client.go.
name=./${1##*/}
cd -P -- "${1%/*}" 2>/dev/null && [ -f "$name" ] || exit 127
why=$(unsafe "${1%/*}")
[ -z "$why" ] || { echo "$why" >&2 && exit 75; }
[ -O "$name" ] || { echo "it belongs to another user" >&2 && exit 73; }
case $(ls -ldn "$name") in -????-??-*) ;; *) echo "others may write it" >&2 && exit 73 ;; esac
got=$(sha256 <"$name") || exit
[ "$got" = "$2" ] || { echo "its digest is $got" >&2 && exit 73; }
exec "$name" "$3"
