#!/usr/bin/env bash
# GPT-2 on OpenWebText, fully sharded over the devices of this machine:
#   ./run_cuda.sh [options of tessera train, which win] 1>run_cuda.out 2>&1 &
# On NVIDIA's GPUs: docs/cuda.md. Where there are none tessera says so and ends with status 1; `--device_type=cpu` trains on
# this machine's cores.
# It ends by its epochs and validates on all that is held out: the two large numbers.
set -euo pipefail
ulimit -n 65536 2>/dev/null || true

# One process a device.
num_gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
NPROC_PER_NODE=${NPROC_PER_NODE:-$((num_gpus > 0 ? num_gpus : 1))}

exec tessera run --nproc_per_node="$NPROC_PER_NODE" --nnodes=1 \
  --rdzv_id=gpt2-fsdp-cuda --rdzv_backend=c10d --rdzv_endpoint=localhost:0 \
  train \
  --hf_model=gpt2 \
  --dataset=openwebtext \
  --dataset_dir=data \
  --batch_size=12 \
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
  --val_batch_size=12 \
  --validation_batches=1000000000 \
  --device_type=cuda \
  --log_dir=logs \
  --checkpoint_dir=checkpoints \
  --resume_from_checkpoint=checkpoints \
  --num_kept_checkpoints=1 \
  --best_val_loss=1e8 \
  --cache_dir=cache \
  --mixed_precision=True \
  --activation_checkpointing=False \
  "$@"
