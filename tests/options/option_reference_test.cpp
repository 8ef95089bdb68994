#include <algorithm>

#include "tests/options/option_testing.h"

// Every spelling that the five seed systems know, with a value that its row accepts. Written from
// their documentation, not from the table.
namespace tessera {
namespace {

using namespace option_testing;

constexpr std::string_view kSpellings =
    "max_steps=5000 max_training_steps=1 num_steps=1200 epochs=3 train_batch_size=2 "
    "batch_size=12 gradient_accumulation_steps=1 grad_clip=1.0 grad_clip_thresh=4.0 "
    "weight_decay=0.2 decay_all=0 beta1=0.9 beta2=0.95 seed=12345 same_seed=0 "
    "lr=1e-4 learning_rate=3e-4 lr_decay_style=cosine lr_decay_iters=47683 min_lr=1e-5 "
    "warmup=0.0032 plateau=0.0 step_lr_gamma=0.1 "
    "model_type=gpt_neox model_name=llama2_7b model_size=70b max_context_width=2048 "
    "block_size=1024 seq_len=4096 seq_length=4096 vocab_size=50432 hidden_width=768 "
    "num_layers=12 num_heads=12 n_embd=768 n_layer=12 n_head=12 num_key_value_heads=None "
    "intermediate_size=11008 llama_intermediate_size=11008 initializer_range=0.02 "
    "rotary_pct=0.25 rotary_emb_base=10000 sliding_window=4096 num_experts_per_tok=2 "
    "num_local_experts=8 moe=0 moe_load_balancing=sinkhorn moe_all_to_all_dispatcher=1 "
    "global_token_shuffle=0 resid_pdrop=0.1 embd_pdrop=0.1 attn_pdrop=0.1 dropout=0.0 "
    "bias=False "
    "bf16=1 mixed_precision=True use_fp16=False fp8=1 fp8_amax_history_len=1024 "
    "fp8_amax_compute_algo=most_recent "
    "sharding_strategy=full sharding_strategy=fsdp sharding_strategy=full_shard "
    "sharding_strategy=hybrid sharding_strategy=hsdp sharding_strategy=hybrid_shard "
    "sharding_strategy=_hybrid_shard_zero2 sharding_strategy=shard_grad_op "
    "sharding_strategy=ddp sharding_strategy=no_shard shard_degree=8 hybrid_shard_degree=8 "
    "tensor_parallel_degree=1 context_parallel_degree=1 expert_parallel_degree=1 "
    "limit_all_gathers=1 forward_prefetch=1 backward_fetch_policy=backward_post "
    "auto_wrap_policy=size_based_auto_wrap_policy delayed_param=1 low_cpu_fsdp=False "
    "cpu_offload=0 offload_activations=1 offload_activation=1 activation_loading_horizon=2 "
    "activation_checkpointing=1 fsdp_activation_checkpointing=True "
    "activation_checkpoint=False selective_checkpointing=1/3 use_smp_implementation=1 "
    "use_smp_flash_attn=1 clean_cache=0 distributed_backend=smddp "
    "dataset=c4 dataset_path=/fsx/data data_path=/fsx/data dataset_config_name=en "
    "dataset_dir=data max_dataset_len=inf dataset_type=hf data_type=gpt training_dir=a "
    "test_dir=b zipped_data=1 use_synthetic_data=1 data_num_workers=4 "
    "tokenizer=EleutherAI/gpt-neox-20b "
    "validation_freq=500 validation_batches=10 val_batch_size=4 fast_validation=1 "
    "run_validation=True eval_only=False "
    "checkpoint_dir=./checkpoints ckpt_save_path=a save_ckpt_path=a checkpoint_freq=1000 "
    "checkpoint_interval=20000 num_kept_checkpoints=2 resume_from_checkpoint=./checkpoints "
    "ckpt_load_path=a load_ckpt_path=a checkpoint_type=local save_final_model=0 "
    "model_dir=None save_ckpt=True best_val_loss=1e9 finetune=0 pretrained_model_name=None "
    "pretrained_checkpoint_file=None finetune_checkpoint_load_dir=None "
    "hf_pretrained_model_name_or_dir=None hf_model=gpt2-medium "
    "logging_freq=1 logging_freq_for_avg=50 report_interval=200 tensorboard_dir=logs "
    "log_dir=logs use_wandb=False peak_tflops_per_gpu=989 enable_memory_profiling=0 "
    "nccl_test_log= use_profiler=True use_nsight=False profile_nsys=1 nsys_start_step=70 "
    "nsys_end_step=75 device_type=xla cache_dir=cache "
    "summary_first_pdrop=0.1 use_orig_params=0 patch_neox_rope=1 framework=fsdp "
    "use_torch_compile=False log_reduced_training_loss=0 preserve_np_state=0 rank=0 "
    "local_rank=0 world_size=8 fsdp=1 ";

// The defaults of the same documentation.
constexpr std::string_view kDefaults =
    "max_steps=5000 epochs=3 train_batch_size=2 gradient_accumulation_steps=1 grad_clip=1.0 "
    "weight_decay=0.2 decay_all=0 beta1=0.9 beta2=0.95 seed=12345 same_seed=0 lr=1e-4 "
    "lr_decay_style=cosine lr_decay_iters=None min_lr=1e-5 warmup=0.0032 plateau=0.0 "
    "step_lr_gamma=0.1 model_type=gpt_neox model_name=None model_size=None "
    "max_context_width=2048 vocab_size=50432 hidden_width=768 num_layers=12 num_heads=12 "
    "num_key_value_heads=None intermediate_size=11008 initializer_range=0.02 rotary_pct=0.25 "
    "rotary_emb_base=10000 sliding_window=None num_experts_per_tok=2 num_local_experts=8 "
    "moe=0 moe_load_balancing=sinkhorn moe_all_to_all_dispatcher=1 global_token_shuffle=0 "
    "resid_pdrop=0.1 embd_pdrop=0.1 attn_pdrop=0.1 bias=False bf16=1 use_fp16=False fp8=1 "
    "fp8_amax_history_len=1024 fp8_amax_compute_algo=max sharding_strategy=full "
    "shard_degree=None tensor_parallel_degree=1 context_parallel_degree=1 "
    "expert_parallel_degree=1 limit_all_gathers=1 forward_prefetch=1 "
    "backward_fetch_policy=backward_pre auto_wrap_policy=transformer_auto_wrap_policy "
    "delayed_param=1 cpu_offload=0 offload_activations=0 activation_loading_horizon=2 "
    "activation_checkpointing=1 selective_checkpointing=1 use_smp_implementation=0 "
    "use_smp_flash_attn=1 clean_cache=0 distributed_backend=nccl dataset=c4 "
    "dataset_config_name=None dataset_dir=data max_dataset_len=inf dataset_type=gpt_jsonl "
    "data_type=gpt zipped_data=1 use_synthetic_data=0 data_num_workers=4 "
    "tokenizer=EleutherAI/gpt-neox-20b validation_freq=None validation_batches=10 "
    "val_batch_size=4 fast_validation=1 run_validation=True eval_only=False "
    "checkpoint_dir=None checkpoint_freq=1000 num_kept_checkpoints=None "
    "resume_from_checkpoint=None checkpoint_type=sharded save_final_model=0 model_dir=None "
    "save_ckpt=True best_val_loss=1e9 logging_freq=1 logging_freq_for_avg=50 "
    "report_interval=None tensorboard_dir=None use_wandb=False peak_tflops_per_gpu=None "
    "enable_memory_profiling=0 use_profiler=False use_nsight=False profile_nsys=0 "
    "cache_dir=cache summary_first_pdrop=0.1 use_orig_params=0 patch_neox_rope=1 "
    "framework=fsdp use_torch_compile=False log_reduced_training_loss=0 preserve_np_state=0 ";

std::vector<std::pair<std::string, std::string>> pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> all;
  for (std::string_view word : split(trim(text), ' ')) {
    size_t equals = word.find('=');
    all.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return all;
}

TEST(ReferenceOptions, EverySpellingParsesInEveryForm) {
  for (const auto& [option, value] : pairs(kSpellings)) {
    std::string hyphens = option;
    std::replace(hyphens.begin(), hyphens.end(), '_', '-');
    ParsedOptions expected = parse({cat("--", option, "=", value)});
    EXPECT_FALSE(expected.given.empty()) << option;
    if (value.empty()) continue;  // an empty word of its own is a stray blank
    EXPECT_EQ(parse({cat("--", option), value}).config, expected.config) << option;
    EXPECT_EQ(parse({cat("--", hyphens, "=", value)}).config, expected.config) << hyphens;
    EXPECT_EQ(parse({cat("--", hyphens), value}).config, expected.config) << hyphens;
  }
}

TEST(ReferenceOptions, Defaults) {
  for (const auto& [option, value] : pairs(kDefaults)) {
    EXPECT_EQ(parse({cat("--", option, "=", value)}).config, RunConfig{}) << option;
  }
}

}  // namespace
}  // namespace tessera
