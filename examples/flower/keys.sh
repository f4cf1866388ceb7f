#!/bin/sh
# A certificate authority, the SuperLink's certificate, and a key pair for each client.
#   sh keys.sh FOLDER IP:127.0.0.1 client-0 client-1 client-2        (or DNS:name.of.the.server)
# What is there is kept, so the same call with more clients adds them; another address gets a certificate of the same
# authority, which clients go on to trust.
set -eu
umask 077
mkdir -p "$1"
cd "$1"
curve="-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
fail() {
    echo "keys.sh: $1" >&2
    exit 2
}
certified() {
    [ -e server.key ] && [ "$(cat server.ext)" = "subjectAltName=$1" ] && openssl verify -CAfile ca.crt server.pem
}
if [ ! -e ca.key ] && [ ! -e ca.crt ]; then
    openssl req -x509 $curve -days 365 -subj "/CN=our own authority" -keyout ca.key -out ca.crt 2>/dev/null
fi
if ! certified "$2" >/dev/null 2>&1; then
    for part in ca.key ca.crt; do
        [ -e "$part" ] || fail "$1/$part is missing: put it back beside the other one, or make all keys in a new folder"
    done
    openssl x509 -checkend 0 -noout -in ca.crt >/dev/null || fail "$1/ca.crt has expired: make all keys in a new folder"
    openssl req $curve -subj "/CN=SuperLink" -keyout server.key -out server.csr 2>/dev/null
    echo "subjectAltName=$2" > server.ext
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext \
        -out server.pem 2>/dev/null
fi
shift 2
for client in "$@"; do
    [ -e "$client" ] || [ -e "$client.pub" ] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "$client" -f "$client"
done
