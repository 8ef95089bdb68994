#!/bin/sh
# Mixtral 8x7B on streamed C4: the argument list of the Slurm script.
# Usage: examples/mixtral_8x7b_slurm.sh [plan|train] [more options, which win]
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
  --train_batch_size=4 \
  --val_batch_size=4 \
  --max_steps=5000 \
  --seed=42 \
  --dataset=c4 \
  --dataset_config_name=en \
  --tokenizer=mistralai/Mixtral-8x7B-v0.1 \
  --checkpoint_freq=5000 \
  --validation_freq=500 \
  --checkpoint_dir=./checkpoints \
  --resume_from_checkpoint=./checkpoints \
  --max_context_width=32768 \
  --vocab_size=32000 \
  --hidden_width=4096 \
  --num_layers=32 \
  --num_heads=32 \
  --num_key_value_heads=8 \
  --intermediate_size=14336 \
  --model_type=mixtral \
  --sharding_strategy=full \
  --offload_activations=1 \
  "$@"
