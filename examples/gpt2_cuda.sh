#!/bin/sh
# GPT-2 on OpenWebText, fully sharded on one node: the argument list of the CUDA and XLA runs.
# It ends by its epochs and validates on all that is held out: the two large numbers.
# Usage: examples/gpt2_cuda.sh [plan|train] [more options, which win]
# For XLA: examples/gpt2_cuda.sh plan --device_type=xla --batch_size=8 --val_batch_size=8
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
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
  --mixed_precision=True \
  --activation_checkpointing=False \
  --log_dir=logs \
  --checkpoint_dir=checkpoints \
  --resume_from_checkpoint=checkpoints \
  --num_kept_checkpoints=1 \
  --best_val_loss=1e8 \
  --cache_dir=cache \
  "$@"
