#!/bin/sh
# Llama-2 7B under the profiler, hybrid sharding: the argument list of the profiling run. The schedule
# and the rates that its program fixed stand here as options.
# Usage: examples/llama2_7b_profiling.sh [plan|train] [more options, which win]
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
  --model_name=llama2_7b \
  --sharding_strategy=hsdp \
  --max_context_width=4096 \
  --batch_size=2 \
  --num_steps=1200 \
  --epochs=1 \
  --learning_rate=3e-4 \
  --lr_decay_style=fms \
  --grad_clip_thresh=4.0 \
  --weight_decay=0.1 \
  --seed=2023 \
  --report_interval=200 \
  --run_validation=False \
  --validation_fraction=0 \
  --checkpoint_interval=20000 \
  --num_kept_checkpoints=1000 \
  --fsdp_activation_checkpointing=True \
  --selective_checkpointing=1 \
  --mixed_precision=True \
  --low_cpu_fsdp=False \
  --use_orig_params=True \
  --use_torch_compile=False \
  --use_profiler=True \
  --use_wandb=False \
  --ckpt_load_path=/fsx/llama2/pretrain/ckpt \
  --ckpt_save_path=/fsx/llama2/pretrain/ckpt \
  --data_path=/fsx/data/examples_datasets/wikicorpus_llama2_7B_tokenized_4k \
  "$@"
