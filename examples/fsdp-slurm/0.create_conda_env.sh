#!/usr/bin/env bash
# Puts tessera into ./pt_fsdp, where all nodes see it, and makes ./checkpoints. There is no conda and no Python in it;
# only the name is kept. Safe to repeat.
#
#   ./0.create_conda_env.sh [TARBALL]    a release (tessera-VERSION-x86_64-linux.tar.gz); without one it is built
set -euo pipefail
cd "$(dirname "$0")"
prefix=$PWD/pt_fsdp
mkdir -p checkpoints
if [[ -n ${1:-} ]]; then
  mkdir -p "$prefix"
  tar -xzf "$1" -C "$prefix" --strip-components=1
else
  cd ../..
  tools/packages require build
  cmake --preset release >/dev/null
  cmake --build --preset release -j "$(nproc)"
  cmake --install build/release --prefix "$prefix" >/dev/null
fi
"$prefix/bin/tessera" version
