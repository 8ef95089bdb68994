#!/bin/sh
# A Llama of the shape of 3.1 8B on streamed C4: the argument list of the Slurm script.
# Usage: examples/llama3_1_8b_slurm.sh [plan|train] [more options, which win]
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
  --max_context_width=8192 \
  --num_key_value_heads=8 \
  --intermediate_size=14336 \
  --hidden_width=4096 \
  --num_layers=32 \
  --num_heads=32 \
  --model_type=llama_v3 \
  --tokenizer=hf-internal-testing/llama-tokenizer \
  --checkpoint_freq=5000 \
  --validation_freq=500 \
  --max_steps=5000 \
  --checkpoint_dir=./checkpoints \
  --resume_from_checkpoint=./checkpoints \
  --dataset=allenai/c4 \
  --dataset_config_name=en \
  --train_batch_size=1 \
  --val_batch_size=1 \
  --sharding_strategy=full \
  --offload_activations=1 \
  "$@"
