#!/bin/sh
# Llama-2 70B on synthetic data with hybrid sharding and fp8: the argument list of the model-parallel
# launcher, in its spelling with blanks.
# Usage: examples/llama2_70b_model_parallel.sh [plan|train] [more options, which win]
command=${1:-plan}
[ $# -gt 0 ] && shift
exec "${TESSERA:-tessera}" "$command" \
  --train_batch_size 4 \
  --val_batch_size 4 \
  --max_steps 100 \
  --model_type llama_v2 \
  --model_size 70b \
  --max_context_width 4096 \
  --hidden_width 8192 \
  --num_layers 80 \
  --num_heads 64 \
  --num_key_value_heads 8 \
  --llama_intermediate_size 28672 \
  --shard_degree 64 \
  --tensor_parallel_degree 1 \
  --use_smp_implementation 1 \
  --use_smp_flash_attn 1 \
  --patch_neox_rope 1 \
  --sharding_strategy hybrid_shard \
  --auto_wrap_policy transformer_auto_wrap_policy \
  --backward_fetch_policy backward_pre \
  --limit_all_gathers 1 \
  --forward_prefetch 1 \
  --activation_checkpointing 1 \
  --activation_loading_horizon 2 \
  --offload_activations 1 \
  --delayed_param 1 \
  --bf16 1 \
  --fp8 1 \
  --fp8_amax_history_len 1024 \
  --fp8_amax_compute_algo max \
  --lr 0.0001 \
  --lr_decay_style cosine \
  --lr_decay_iters 47683 \
  --min_lr 1e-05 \
  --warmup 0.0032 \
  --plateau 0.0 \
  --weight_decay 0.2 \
  --beta1 0.9 \
  --beta2 0.95 \
  --grad_clip 1.0 \
  --initializer_range 0.02 \
  --seed 12345 \
  --dataset_type hf \
  --use_synthetic_data 1 \
  --checkpoint_dir ./checkpoints \
  --checkpoint_freq 100 \
  --num_kept_checkpoints 2 \
  --checkpoint_type sharded \
  --save_final_model 0 \
  --logging_freq 1 \
  --profile_nsys 1 \
  --distributed_backend nccl \
  --clean_cache 0 \
  "$@"
