#include "optim/optimizer.h"
#include "options/option_table_groups.h"

// Steps, learning rate, precision, parallelism.
namespace tessera::option_groups {
namespace {
constexpr std::string_view kNoFp8 = "fp8 is not built: --bf16 and --use_fp16 decide";

std::vector<OptionValue> optimizer_values() {
  std::vector<OptionValue> values;
  for (const OptimizerRecord& record : optimizers()) values.push_back({.name = record.name});
  return values;
}
}  // namespace

std::vector<OptionRow> steps() {
  return {
      {.name = "max_steps",
       .aliases = {"max_training_steps", "num_steps"},
       .field = &RunConfig::max_steps,
       .help = "optimizer steps over all epochs; reaching it stops everything",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "epochs",
       .field = &RunConfig::epochs,
       .help =
           "passes over the data; the first of epochs and max_steps ends training; a total count, "
           "also after a resume",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "train_batch_size",
       .aliases = {"batch_size"},
       .field = &RunConfig::train_batch_size,
       .help = "sequences per data-parallel rank per micro-step",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kWarned},
      {.name = "gradient_accumulation_steps",
       .field = &RunConfig::gradient_accumulation_steps,
       .help = "micro-steps per optimizer step; averaged over all tokens",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kWarned},
      {.name = "grad_clip",
       .aliases = {"grad_clip_thresh"},
       .field = &RunConfig::grad_clip,
       .help =
           "maximum global L2 norm of the gradient; 0, below 0 or None: no clipping, the norm is "
           "still reported",
       .infinity = true,
       .none = "0",
       .on_resume = kWarned},
      {.name = "optimizer",
       .field = &RunConfig::optimizer,
       .help = "how gradients become updates (docs/optimizers.md)",
       .values = optimizer_values(),
       .on_resume = kRefused},
      {.name = "weight_decay",
       .field = &RunConfig::weight_decay,
       .help = "decay of weights, not of norms and biases; decoupled, but with sgd a part of the "
               "gradient",
       .minimum = 0,
       .on_resume = kWarned},
      {.name = "decay_all",
       .field = &RunConfig::decay_all,
       .help = "decay every parameter",
       .on_resume = kWarned},
      {.name = "freeze",
       .field = &RunConfig::freeze,
       .help = "parameters that are not trained, by their names: patterns with *, ? and [..] as a "
               "shell has them, separated by commas or blanks, for example "
               "`model.embed_tokens.*,model.layers.[0-3].*`; they take no gradients and no "
               "optimizer state",
       .form = ValueForm::kCommaList,
       .on_resume = kRefused},
      {.name = "beta1",
       .field = &RunConfig::beta1,
       .help = "adamw: decay of the first moment, epsilon is 1e-8; lion: weight of the momentum in "
               "the direction of a step",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "beta2",
       .field = &RunConfig::beta2,
       .help = "adamw: decay of the second moment; lion: decay of the momentum",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "momentum",
       .field = &RunConfig::momentum,
       .help = "sgd: decay of the momentum",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "z_loss",
       .field = &RunConfig::z_loss,
       .help = "factor of the z-loss: times the mean over tokens of log(sum(exp(logits)))^2, it is "
               "minimised with the loss and reported beside it in metrics_file; 0: none",
       .minimum = 0,
       .on_resume = kWarned},
      {.name = "seed",
       .field = &RunConfig::seed,
       .help = "drives initialisation, dropout, the order of the data and sampling",
       .minimum = 0,
       .scopes = kRunScopes | in(OptionScope::kGenerate),
       .on_resume = kWarned},
      {.name = "same_seed",
       .field = &RunConfig::same_seed,
       .help =
           "dropout: 0: numbers belong to a sample, whatever rank works on it; 1: one stream on "
           "all ranks, the first sample of each draws the same numbers; the data stays "
           "disjoint either way",
       .on_resume = kWarned},
      {.name = "max_skipped_steps",
       .field = &RunConfig::max_skipped_steps,
       .help = "updates skipped in a row, for a loss or gradient that is not finite, after which "
               "the run stops",
       .minimum = 1,
       .on_resume = kFree},
  };
}

std::vector<OptionRow> learning_rate() {
  return {
      {.name = "lr",
       .aliases = {"learning_rate"},
       .field = &RunConfig::lr,
       .help = "peak rate",
       .minimum = 0,
       .on_resume = kOverridden},
      {.name = "lr_decay_style",
       .field = &RunConfig::lr_decay_style,
       .help = "curve after the warm-up; fms: quadratic warm-up and cosine to 10 %; step: "
               "step_lr_gamma after every epoch",
       .values = {{.name = "constant"},
                  {.name = "linear"},
                  {.name = "cosine"},
                  {.name = "exponential"},
                  {.name = "plateau"},
                  {.name = "fms"},
                  {.name = "step"}},
       .on_resume = kOverridden},
      {.name = "lr_decay_iters",
       .field = &RunConfig::lr_decay_iters,
       .help = "steps N of the curve",
       .minimum = 1,
       .unset = "max_steps",
       .on_resume = kOverridden},
      {.name = "min_lr",
       .field = &RunConfig::min_lr,
       .help = "floor after the warm-up; cosine and linear reach it only with a short one (warmup)",
       .minimum = 0,
       .on_resume = kOverridden},
      {.name = "warmup",
       .field = &RunConfig::warmup,
       .help =
           "warm-up as a fraction W of N; the curve behind it stops at N - 2 W N of its N steps: "
           "with 0.15 cosine ends at a fifth of the peak, with 0.5 at the peak; with more the rate "
           "rises above lr, which is warned of",
       .minimum = 0,
       .maximum = 1,
       .on_resume = kOverridden},
      {.name = "plateau",
       .field = &RunConfig::plateau,
       .help = "plateau style: hold at the peak, as a fraction of N",
       .minimum = 0,
       .maximum = 1,
       .on_resume = kOverridden},
      {.name = "step_lr_gamma",
       .field = &RunConfig::step_lr_gamma,
       .help = "step style: factor after every epoch",
       .minimum = 0,
       .on_resume = kOverridden},
  };
}

std::vector<OptionRow> precision() {
  return {
      {.name = "bf16",
       .aliases = {"mixed_precision"},
       .field = &RunConfig::bf16,
       .help = "bf16 compute over f32 master weights; False: f32 throughout",
       .scopes = kRunScopes | in(OptionScope::kGenerate),
       .on_resume = kWarned},
      {.name = "use_fp16",
       .field = &RunConfig::use_fp16,
       .help = "f16 compute over f32 master weights, in place of bf16, with dynamic loss scaling",
       .on_resume = kWarned},
      {.name = "fp8",
       .field = &RunConfig::fp8,
       .help = "fp8 linear layers with delayed scaling; acts with use_smp_implementation",
       .status = kNoEffect,
       .reason = kNoFp8},
      {.name = "fp8_amax_history_len",
       .field = &RunConfig::fp8_amax_history_len,
       .help = "fp8: steps of the history of maxima",
       .minimum = 1,
       .status = kNoEffect,
       .reason = kNoFp8},
      {.name = "fp8_amax_compute_algo",
       .field = &RunConfig::fp8_amax_compute_algo,
       .help = "fp8: what of that history is used",
       .values = {{.name = "max"}, {.name = "most_recent"}},
       .status = kNoEffect,
       .reason = kNoFp8},
  };
}

namespace {

std::vector<OptionRow> sharding() {
  return {
      {.name = "sharding_strategy",
       .field = &RunConfig::sharding_strategy,
       .help = "what is sharded over the data-parallel ranks: full_shard everything, shard_grad_op "
               "the same but parameters are kept from the forward to the backward pass, no_shard "
               "nothing; hybrid: shard in a host, replicate across",
       .values = {{.name = "full_shard", .synonyms = {"full", "fsdp"}},
                  {.name = "hybrid_shard", .synonyms = {"hybrid", "hsdp"}},
                  {.name = "_hybrid_shard_zero2", .synonyms = {"hybrid_shard_zero2"}},
                  {.name = "shard_grad_op"},
                  {.name = "no_shard", .synonyms = {"ddp"}}},
       .on_resume = kFree},
      {.name = "shard_degree",
       .aliases = {"hybrid_shard_degree"},
       .field = &RunConfig::shard_degree,
       .help = "ranks per shard group: none or 0 by strategy, 1 none, or any divisor of the world",
       .minimum = 0,
       .maximum = kLargestCount,
       .form = ValueForm::kOptional,
       .unset = "by strategy",
       .on_resume = kFree},
      {.name = "tensor_parallel_degree",
       .field = &RunConfig::tensor_parallel_degree,
       .help =
           "ranks that share each layer, heads and columns of its matrices and the vocabulary cut "
           "among them; the sequence too outside of attention and MLP where it divides",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "reduce_dtype",
       .field = &RunConfig::reduce_dtype,
       .help = "dtype in which gradients travel between ranks; they are summed in f32 either way",
       .values = {{.name = "f32"}, {.name = "bf16"}},
       .on_resume = kWarned},
      {.name = "unsharded_accumulation",
       .field = &RunConfig::unsharded_accumulation,
       .help =
           "add up the gradients of the micro-batches of a step whole and reduce them once: fewer "
           "bytes on the wire, a full set of gradients in memory",
       .on_resume = kWarned},
      {.name = "context_parallel_degree",
       .field = &RunConfig::context_parallel_degree,
       .help = "ranks that share each sequence",
       .minimum = 1,
       .status = kNotBuilt},
      {.name = "expert_parallel_degree",
       .field = &RunConfig::expert_parallel_degree,
       .help = "ranks that share the experts of a layer",
       .minimum = 1,
       .status = kNotBuilt},
      {.name = "limit_all_gathers",
       .field = &RunConfig::limit_all_gathers,
       .help = "bound the gathers that run ahead to the next layer's; False: those of two layers",
       .on_resume = kFree},
      {.name = "forward_prefetch",
       .field = &RunConfig::forward_prefetch,
       .help = "gather the next layer's parameters while a layer computes, in the forward pass",
       .on_resume = kFree},
      {.name = "backward_fetch_policy",
       .field = &RunConfig::backward_fetch_policy,
       .help = "when the next gather of the backward pass starts: before a layer's gradients are "
               "computed, or after",
       .values = {{.name = "backward_pre"}, {.name = "backward_post"}},
       .on_resume = kFree},
      {.name = "auto_wrap_policy",
       .field = &RunConfig::auto_wrap_policy,
       .help = "unit of sharding: a decoder layer, the embedding and the head, or by size",
       .values = {{.name = "transformer_auto_wrap_policy"},
                  {.name = "size_based_auto_wrap_policy", .built = false}},
       .on_resume = kFree},
      {.name = "delayed_param",
       .aliases = {"low_cpu_fsdp"},
       .field = &RunConfig::delayed_param,
       .help = "each rank creates only its shard, for False too",
       .status = kNoEffect,
       .reason = "a rank never creates more than its shard"},
      {.name = "distributed_backend",
       .field = &RunConfig::distributed_backend,
       .help = "transport between ranks; smddp is taken as nccl, with a warning. On the CPU nccl "
               "stands "
               "for the best there is: shared memory within a host, TCP (Gloo) between hosts",
       .values = {{.name = "nccl"}, {.name = "gloo"}, {.name = "shared_memory"}, {.name = "smddp"}},
       .on_resume = kFree},
      {.name = "comm_timeout",
       .field = &RunConfig::comm_timeout,
       .help = "seconds that a rank waits for another in one exchange before the job ends with an "
               "error that names it",
       .minimum = 0.1,
       .on_resume = kFree},
      {.name = "reproducible",
       .field = &RunConfig::reproducible,
       .help =
           "sums between GPUs in rank order, as the CPU takes them: the same bits whatever NCCL "
           "would choose on other links and versions. On the CPU they always are",
       .on_resume = kFree},
      {.name = "world",
       .field = &RunConfig::world,
       .help = "number of ranks to plan for",
       .minimum = 1,
       .maximum = kLargestCount,
       .unset = "shard_degree x tensor_parallel_degree",
       .scopes = kPlanScopes},
      {.name = "ranks_per_host",
       .field = &RunConfig::ranks_per_host,
       .help = "of them on one host: where hybrid strategies shard, and whose memory they share",
       .minimum = 1,
       .maximum = kLargestCount,
       .scopes = kPlanScopes},
  };
}

std::vector<OptionRow> memory() {
  return {
      {.name = "cpu_offload",
       .field = &RunConfig::cpu_offload,
       .help =
           "parameters, gradients and optimizer state on the host, which does the updates; here "
           "the host is a second arena",
       .on_resume = kFree},
      {.name = "offload_activations",
       .aliases = {"offload_activation"},
       .field = &RunConfig::offload_activations,
       .help = "what decoder layers keep for the backward pass goes to host memory; here the host "
               "is a second arena",
       .on_resume = kFree},
      {.name = "activation_loading_horizon",
       .field = &RunConfig::activation_loading_horizon,
       .help = "layers brought back ahead of the backward pass when offloading; the last ones stay",
       .minimum = 0,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "activation_checkpointing",
       .aliases = {"fsdp_activation_checkpointing", "activation_checkpoint"},
       .field = &RunConfig::activation_checkpointing,
       .help = "recompute decoder layers in the backward pass; results are the same either way",
       .on_resume = kFree},
      {.name = "selective_checkpointing",
       .field = &RunConfig::selective_checkpointing,
       .help = "recompute every k-th layer (0, 1: all); below 1 or p/q: that share of the layers",
       .form = ValueForm::kLayerChoice,
       .on_resume = kFree},
      {.name = "checkpointing_policy",
       .field = &RunConfig::checkpointing_policy,
       .help = "what a recomputed layer keeps: its input (layer), or also the results of matrix "
               "products, attention and communication (op)",
       .values = {{.name = "layer"}, {.name = "op"}},
       .on_resume = kFree},
      {.name = "use_smp_implementation",
       .field = &RunConfig::use_smp_implementation,
       .help = "layers that tensor parallelism and fp8 need",
       .status = kNoEffect,
       .reason = "there is one implementation of each layer"},
      {.name = "use_smp_flash_attn",
       .field = &RunConfig::use_smp_flash_attn,
       .help = "fused attention",
       .status = kNoEffect,
       .reason = "attention is always fused"},
      {.name = "clean_cache",
       .field = &RunConfig::clean_cache,
       .help = "give cached device memory back after each step",
       .status = kNoEffect,
       .reason = "memory is planned and nothing is cached"},
      {.name = "memory",
       .field = &RunConfig::memory,
       .help =
           "memory a rank may use, for example 80GiB, apart from what is offloaded; a plan that "
           "needs more is refused; without it, one that needs more than its host has left",
       .minimum = 1,
       .form = ValueForm::kBytes,
       .unset = "what the host has left",
       .scopes = kRunScopes | in(OptionScope::kGenerate),
       .on_resume = kFree},
      {.name = "host_memory",
       .field = &RunConfig::host_memory,
       .help = "memory of a host for what all its ranks offload; a plan that needs more is refused",
       .minimum = 1,
       .form = ValueForm::kBytes,
       .unset = "no limit",
       .on_resume = kFree},
      {.name = "network_bandwidth",
       .field = &RunConfig::network_bandwidth,
       .help = "bytes a second that a rank sends to other hosts, to plan with",
       .minimum = 1,
       .form = ValueForm::kBytes,
       .unset = "by device",
       .scopes = kPlanScopes},
      {.name = "peer_bandwidth",
       .field = &RunConfig::peer_bandwidth,
       .help = "bytes a second that a rank sends within its host, to plan with",
       .minimum = 1,
       .form = ValueForm::kBytes,
       .unset = "by device",
       .scopes = kPlanScopes},
      {.name = "host_bandwidth",
       .field = &RunConfig::host_bandwidth,
       .help = "bytes a second between a rank and its host's memory, to plan with",
       .minimum = 1,
       .form = ValueForm::kBytes,
       .scopes = kPlanScopes},
      {.name = "target",
       .field = &RunConfig::target,
       .help =
           "GPU to plan for, without one. none with device_type cuda: this host's, else h100. With "
           "device_type xla (not h200) the programs are compiled for it: docs/xla.md",
       .values = {{.name = "none"}, {.name = "h100"}, {.name = "h200"}, {.name = "a100"}},
       .scopes = in(OptionScope::kPlan)},
      {.name = "save_executable",
       .field = &RunConfig::save_executable,
       .help = "of target: file that receives what was compiled; the program's name goes before "
               "its extension",
       .scopes = in(OptionScope::kPlan)},
  };
}

}  // namespace

std::vector<OptionRow> parallelism() {
  std::vector<OptionRow> rows = sharding();
  for (OptionRow& row : memory()) rows.push_back(row);
  return rows;
}

}  // namespace tessera::option_groups
