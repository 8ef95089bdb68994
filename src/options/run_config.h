#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// Everything a command can be told: one field an option, of the same name. Initialisers are the
// defaults that --help and docs/options.md show; option_table.h has the row of each (aliases,
// range, help, whether it works yet). No field is read before parse_options() or
// run_config_from_json() has checked it against its row, so enumerations are plain strings in the
// row's spelling. An empty string and an empty optional mean "none".
struct RunConfig {
  // Steps, optimizer, seed
  int64_t max_steps = 5000;
  int64_t epochs = 3;
  int64_t train_batch_size = 2;
  int64_t gradient_accumulation_steps = 1;
  double grad_clip = 1.0;
  double weight_decay = 0.2;
  bool decay_all = false;
  std::vector<std::string> freeze;
  std::string optimizer = "adamw";
  double beta1 = 0.9;
  double beta2 = 0.95;
  double momentum = 0.9;
  double z_loss = 0.0;
  int64_t seed = 12345;
  bool same_seed = false;
  int64_t max_skipped_steps = 5;

  // Learning rate
  double lr = 1e-4;
  std::string lr_decay_style = "cosine";
  std::optional<int64_t> lr_decay_iters;
  double min_lr = 1e-5;
  double warmup = 0.0032;
  double plateau = 0.0;
  double step_lr_gamma = 0.1;

  // Model; models/model_config.h, made of these by model_options.h
  std::string model_type = "gpt_neox";
  std::string model_name;
  std::string model_size;
  std::string model_config;
  int64_t max_context_width = 2048;
  int64_t vocab_size = 50432;
  int64_t hidden_width = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  int64_t intermediate_size = 11008;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  double rotary_pct = 0.25;
  int64_t rotary_emb_base = 10000;
  std::optional<int64_t> sliding_window;
  int64_t num_experts_per_tok = 2;
  int64_t num_local_experts = 8;
  bool moe = false;
  std::string moe_load_balancing = "sinkhorn";
  bool moe_all_to_all_dispatcher = true;
  bool global_token_shuffle = false;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  bool bias = false;
  std::string gelu = "tanh";

  // Precision
  bool bf16 = true;
  bool use_fp16 = false;
  bool fp8 = true;
  int64_t fp8_amax_history_len = 1024;
  std::string fp8_amax_compute_algo = "max";

  // Parallelism, memory
  std::string sharding_strategy = "full_shard";
  std::optional<int64_t> shard_degree;
  int64_t tensor_parallel_degree = 1;
  std::string reduce_dtype = "f32";
  bool unsharded_accumulation = false;
  double comm_timeout = 600;
  bool reproducible = false;
  std::optional<int64_t> world;
  int64_t ranks_per_host = 8;
  int64_t context_parallel_degree = 1;
  int64_t expert_parallel_degree = 1;
  bool limit_all_gathers = true;
  bool forward_prefetch = true;
  std::string backward_fetch_policy = "backward_pre";
  std::string auto_wrap_policy = "transformer_auto_wrap_policy";
  bool delayed_param = true;
  bool cpu_offload = false;
  bool offload_activations = false;
  int64_t activation_loading_horizon = 2;
  bool activation_checkpointing = true;
  std::string selective_checkpointing = "1";
  std::string checkpointing_policy = "layer";
  bool use_smp_implementation = false;
  bool use_smp_flash_attn = true;
  bool clean_cache = false;
  std::string distributed_backend = "nccl";

  // Data
  std::string dataset = "c4";
  std::vector<std::string> dataset_mix;
  std::string text_field;  // "": text
  std::string streaming = "auto";
  int64_t data_lanes = 96;
  int64_t shuffle_buffer = 1000;
  std::string packing = "auto";
  std::string dataset_config_name;
  std::string dataset_dir = "data";
  std::optional<int64_t> max_dataset_len;
  std::string dataset_type = "gpt_jsonl";
  std::string data_type = "gpt";
  std::string training_dir;
  std::string test_dir;
  bool zipped_data = true;
  bool use_synthetic_data = false;
  bool document_mask = false;
  int64_t data_num_workers = 4;
  std::string tokenizer = "EleutherAI/gpt-neox-20b";
  std::string chat_template;
  std::string on_bad_line = "error";

  // Validation
  std::optional<int64_t> validation_freq;
  int64_t validation_batches = 10;
  int64_t val_batch_size = 4;
  std::string validation_dataset;
  double validation_fraction = 0.01;
  bool fast_validation = true;
  bool run_validation = true;
  bool eval_only = false;
  bool compare_baselines = false;

  // Checkpoints, fine-tuning
  // One entry a tier: checkpoint_tiers().
  std::vector<std::string> checkpoint_dir, checkpoint_freq{"1000"}, num_kept_checkpoints;
  std::string async_checkpoint = "auto", busy_checkpoint = "wait";
  std::vector<std::string> resume_from_checkpoint;
  std::string checkpoint_type = "sharded";
  bool save_final_model = false;
  std::string model_dir;
  bool save_ckpt = true;
  double best_val_loss = 1e9;
  bool finetune = false;
  std::string pretrained_model_name;
  std::string pretrained_checkpoint_file;
  std::string finetune_checkpoint_load_dir;
  std::string hf_pretrained_model_name_or_dir;
  std::string hf_home;

  // Low-rank adapters
  int64_t lora_rank = 0;
  std::optional<double> lora_alpha;
  bool lora_rank_stabilised = false;
  double lora_dropout = 0.0;
  std::vector<std::string> lora_targets;
  std::string lora_adapter;
  bool merge_adapter = false;

  // Logging, profiling, device
  int64_t logging_freq = 1;
  int64_t logging_freq_for_avg = 50;
  std::optional<int64_t> report_interval;
  std::string metrics_file;
  bool data_hash = false;
  std::vector<std::string> tensorboard_dir;
  bool use_wandb = false;
  std::optional<double> peak_tflops_per_gpu;
  bool enable_memory_profiling = false;
  std::string nccl_test_log;
  std::string log_level = "info";
  std::string device_type = "auto";
  std::string xla_plugin;
  std::string cpu_isa = "auto";
  std::optional<int64_t> threads;
  std::optional<int64_t> memory;
  std::optional<int64_t> host_memory;
  std::optional<int64_t> network_bandwidth;
  std::optional<int64_t> peer_bandwidth;
  int64_t host_bandwidth = 25'000'000'000;
  std::string target = "none";
  std::string save_executable;
  std::string cache_dir = "cache";
  int64_t max_cache_size = int64_t{64} << 30;

  // Watching a run
  std::string console = "auto";
  std::optional<int64_t> http_port;
  std::string http_address = "127.0.0.1";
  std::optional<int64_t> dashboard;
  std::string dashboard_address = "127.0.0.1";
  std::string memory_chart;
  std::optional<int64_t> histogram_freq;
  std::string flight_recorder_dir;
  int64_t flight_recorder_size = 20'000;

  // Guards of a run
  std::optional<double> first_step_timeout, step_timeout;
  std::string heartbeat_file;
  int64_t straggler_interval = 100;
  double straggler_threshold = 1.5;
  std::string loss_spike_policy = "none";
  double loss_spike_threshold = 6;
  int64_t loss_spike_window = 128;
  int64_t max_loss_spike_rewinds = 3;
  std::vector<std::string> inject;

  // Profiles
  bool use_profiler = false;
  std::string profile_dir = "profile_traces";
  int64_t profiler_wait = 1, profiler_warmup = 2, profiler_active = 3, profiler_repeat = 1;
  bool use_nsight = false;
  bool profile_nsys = false;
  std::optional<int64_t> nsys_start_step;
  std::optional<int64_t> nsys_end_step;
  int64_t rows_shown = 30;
  std::string html_file;
  std::string trace_file = "merged.trace.json";

  // Looking inside
  std::string dump_pass;
  std::string dump_format = "text";
  std::vector<std::string> disable_pass;
  std::string hash_file;

  // Configuration files
  std::vector<std::string> config;
  bool print_config = false;

  // Commands other than train and plan
  std::string prompt;
  std::string prompt_file;
  bool chat = false;
  std::string prompts_file;
  std::optional<int64_t> prompt_batch_size;
  int64_t max_new_tokens = 128;
  double temperature = 1.0;
  std::optional<int64_t> top_k;
  double top_p = 1.0;
  std::vector<std::string> stop;
  std::string dtype = "f32";
  std::string format = "safetensors";
  int64_t max_shard_size = 5'000'000'000;
  std::string output = "tokenizer.json";
  int64_t min_frequency = 2;
  bool by_op = false;
  int64_t repeats = 10;
  std::vector<std::string> op;

  // Preparing and looking at data
  std::string preset = "none";
  std::string output_dir;
  int64_t shard_tokens = 100'000'000;
  std::string output_form = "shards";
  std::string rows = "documents";
  bool append_eos = true;
  std::string validation_split = "random";
  std::optional<double> val_split_percentage;
  int64_t samples = 3;

  // Looking after checkpoints
  int64_t position = 0;
  std::optional<int64_t> keep;
  std::optional<int64_t> every;
  bool keep_best = false;
  bool dry_run = false;
  bool json = false;

  // Curves
  std::vector<std::string> metrics;
  double smooth = 0;
  std::string plot_file;

  // Accepted, no effect
  double summary_first_pdrop = 0.1;
  bool use_orig_params = false;
  bool patch_neox_rope = true;
  std::string framework = "fsdp";
  bool use_torch_compile = false;
  bool log_reduced_training_loss = false;
  bool preserve_np_state = false;
  std::optional<int64_t> rank;
  std::optional<int64_t> local_rank;
  std::optional<int64_t> world_size;
  bool fsdp = true;

  bool operator==(const RunConfig&) const = default;
};

}  // namespace tessera
