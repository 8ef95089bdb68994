#!/usr/bin/env bash
# The image smpv2 and, where enroot is, its file smpv2.sqsh here: on a worker node, whose NVMe disk enroot can use. No
# vendor's base image, and so no permissions of a registry, are needed.
set -euo pipefail
cd "$(dirname "$0")"
docker build -t smpv2 ../..
if command -v enroot >/dev/null; then
  rm -f smpv2.sqsh
  enroot import -o smpv2.sqsh dockerd://smpv2:latest
else
  echo "enroot is not installed here. On a node that has it: enroot import -o smpv2.sqsh dockerd://smpv2:latest" >&2
fi
