#!/bin/sh
# Makes a Debian root without a registry, as root. Arguments: directory for the root, release, mirror or "", packages, tar file.
# The recipe is expected beside this script. It is run in a mount namespace of its own, so that what debootstrap mounts is
# gone with it, whatever happens.
set -eu
root=$1 release=$2 mirror=$3 packages=$4 tarball=$5
here=$(dirname "$0")
debootstrap --variant=minbase --include="$(echo "$packages" | tr ' ' ,)" "$release" "$root" ${mirror:+"$mirror"}
# systemd-resolved puts a link there, which leads to nothing until it runs: no name could be resolved in the root.
[ -e "$root/etc/resolv.conf" ] || { rm -f "$root/etc/resolv.conf" && cp /etc/resolv.conf "$root/etc/resolv.conf"; }
cp -r "$here/recipe" "$root/recipe"
chroot "$root" /bin/sh /recipe/setup.sh
umount "$root/proc" "$root/sys" 2>/dev/null || true
rm -rf "$root/recipe"
tar -C "$root" --numeric-owner -cf "$tarball" .
