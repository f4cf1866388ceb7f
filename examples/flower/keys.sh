#!/bin/sh
# A certificate authority, the SuperLink's certificate, and a key pair for each client.
#   sh keys.sh FOLDER IP:127.0.0.1 client-0 client-1 client-2        (or DNS:name.of.the.server)
set -eu
umask 077
mkdir -p "$1"
cd "$1"
curve="-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
openssl req -x509 $curve -days 365 -subj "/CN=our own authority" -keyout ca.key -out ca.crt 2>/dev/null
openssl req $curve -subj "/CN=SuperLink" -keyout server.key -out server.csr 2>/dev/null
echo "subjectAltName=$2" > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext -out server.pem 2>/dev/null
shift 2
for client in "$@"; do ssh-keygen -q -t ecdsa -b 384 -N "" -C "$client" -f "$client"; done
