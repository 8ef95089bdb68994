#!/usr/bin/env bash
# GPT-2 on OpenWebText, fully sharded over the devices of this machine:
#   ./run_xla.sh [options of tessera train, which win] 1>run_xla.out 2>&1 &
# On XLA's CPU, by a plug-in that `tools/packages install xla` gets: docs/xla.md. The same arguments as run_cuda.sh, but for the
# batch.
set -euo pipefail
ulimit -n 65536 2>/dev/null || true

# One process a device. XLA's GPUs are for tessera plan only, yet.
NPROC_PER_NODE=${NPROC_PER_NODE:-1}

exec tessera run --nproc_per_node="$NPROC_PER_NODE" --nnodes=1 \
  --rdzv_id=gpt2-fsdp-xla --rdzv_backend=c10d --rdzv_endpoint=localhost:0 \
  train \
  --hf_model=gpt2 \
  --dataset=openwebtext \
  --dataset_dir=data \
  --batch_size=8 \
  --learning_rate=6e-4 \
  --lr_decay_style=step \
  --weight_decay=0.1 \
  --betas 0.9 0.999 \
  --grad_clip=None \
  --seed=42 \
  --device_type=xla \
  --log_dir=logs \
  --checkpoint_dir=checkpoints \
  --cache_dir=cache \
  --mixed_precision=True \
  "$@"
