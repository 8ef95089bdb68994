#!/bin/sh
# Llama-2 7B on streamed C4, fully sharded: the argument list of the Slurm script.
# Usage: examples/llama2_7b_slurm.sh [plan|train] [more options, which win]
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
  --max_context_width=4096 \
  --num_key_value_heads=32 \
  --intermediate_size=11008 \
  --hidden_width=4096 \
  --num_layers=32 \
  --num_heads=32 \
  --model_type=llama_v2 \
  --tokenizer=hf-internal-testing/llama-tokenizer \
  --checkpoint_freq=1000 \
  --validation_freq=500 \
  --max_steps=5000 \
  --checkpoint_dir=./checkpoints \
  --resume_from_checkpoint=./checkpoints \
  --dataset=c4 \
  --dataset_config_name=en \
  --train_batch_size=1 \
  --val_batch_size=1 \
  --sharding_strategy=full \
  "$@"
