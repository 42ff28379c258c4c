#!/bin/bash
# Make a certificate authority and one certificate for all nodes of a Dask cluster.
#
#   ./make-certificates.sh FOLDER [DAYS]
#
# Whoever has FOLDER/node.pem and FOLDER/node.key can join the cluster: keep the folder to yourself.
set -eu
folder=${1:?give a folder for the certificates}
days=${2:-365}
if [ -e "$folder/ca.key" ] || [ -e "$folder/node.key" ]; then
    echo "There are keys in $folder already; give another folder, or remove them." >&2
    exit 1
fi
umask 077
mkdir -p "$folder"
openssl req -x509 -newkey rsa:3072 -sha256 -nodes -days "$days" -subj "/CN=daskclust authority" \
    -keyout "$folder/ca.key" -out "$folder/ca.pem" 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj "/CN=daskclust node" \
    -keyout "$folder/node.key" -out "$folder/node.csr" 2>/dev/null
openssl x509 -req -sha256 -days "$days" -in "$folder/node.csr" -CA "$folder/ca.pem" \
    -CAkey "$folder/ca.key" -CAcreateserial -out "$folder/node.pem" 2>/dev/null
rm -f "$folder/node.csr" "$folder/ca.srl"
echo "ca.pem, node.pem, node.key in $folder; ca.key signs further certificates, keep it elsewhere."
