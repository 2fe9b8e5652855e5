#!/bin/sh
# Makes the other files of this folder by systemd-measure 257 (Debian package systemd 257.13-1~deb13u1) and openssl.
# The private key is thrown away: the tests check the signatures with the public key.
#   sh golden.sh SYSTEMD-MEASURE
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$tmp/key.pem"
openssl pkey -in "$tmp/key.pem" -pubout -out public.pem
printf 'MZ a kernel' >"$tmp/linux"
printf 'ID=talos\nVERSION_ID=v0.1.0\n' >"$tmp/osrel"
printf 'console=ttyS0 talos.platform=metal' >"$tmp/cmdline"
printf '070701 an initramfs' >"$tmp/initrd"
printf '6.12.41' >"$tmp/uname"
printf '%080d' 0 | tr 0 s >"$tmp/sbat" # what the stub of format/uki has
set -- "$1" \
	--linux="$tmp/linux" --osrel="$tmp/osrel" --cmdline="$tmp/cmdline" --initrd="$tmp/initrd" \
	--uname="$tmp/uname" --sbat="$tmp/sbat" --pcrpkey=public.pem \
	--bank=sha256 --bank=sha384 --bank=sha512 --json=short \
	--phase=enter-initrd --phase=enter-initrd:leave-initrd --phase=enter-initrd:leave-initrd:enter-machined
measure=$1
shift
"$measure" calculate "$@" --phase= >calculate.json
"$measure" sign "$@" --private-key="$tmp/key.pem" --public-key=public.pem >sign.json
