#!/usr/bin/env bash
# GPT-2 on OpenWebText, fully sharded over the devices of this machine:
#   ./run_xla.sh [options of tessera train, which win] 1>run_xla.out 2>&1 &
# On XLA's CPU, by a plug-in that `tools/packages install xla` gets: docs/xla.md. The same arguments as run_cuda.sh, but for the
# batch.
# It ends by its epochs and validates on all that is held out: the two large numbers.
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
  --block_size=1024 \
  --epochs=3 \
  --max_steps=1000000000 \
  --learning_rate=6e-4 \
  --lr_decay_style=step \
  --step_lr_gamma=0.1 \
  --weight_decay=0.1 \
  --betas 0.9 0.999 \
  --grad_clip=None \
  --dropout=0.0 \
  --seed=42 \
  --val_batch_size=8 \
  --validation_batches=1000000000 \
  --device_type=xla \
  --log_dir=logs \
  --checkpoint_dir=checkpoints \
  --resume_from_checkpoint=checkpoints \
  --num_kept_checkpoints=1 \
  --best_val_loss=1e8 \
  --cache_dir=cache \
  --mixed_precision=True \
  --activation_checkpointing=False \
  "$@"
