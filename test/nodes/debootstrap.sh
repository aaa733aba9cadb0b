#!/bin/sh
# Makes the image without a registry, as root. Arguments: directory for the root, release, mirror or "", packages, image.
# It is run in a mount namespace of its own, so that what debootstrap mounts is gone with it, whatever happens.
set -eu
root=$1 release=$2 mirror=$3 packages=$4 image=$5
here=$(dirname "$0")
debootstrap --variant=minbase --include="$(echo "$packages" | tr ' ' ,)" "$release" "$root" ${mirror:+"$mirror"}
cp "$here/setup.sh" "$root/setup.sh"
cp "$here/entrypoint.sh" "$root/entrypoint"
chroot "$root" /bin/sh /setup.sh
umount "$root/proc" "$root/sys" 2>/dev/null || true
tar -C "$root" --numeric-owner -cf "$root.tar" .
docker import --change 'ENTRYPOINT ["/entrypoint"]' --change 'ENV container=docker' "$root.tar" "$image"
