#include "programs/program_options.h"

#include "options/option_table.h"

namespace tessera {

namespace {

ResidencyOptions residency_options(const RunConfig& config, const Parallelism& parallelism) {
  ResidencyOptions options;
  if (config.activation_checkpointing) {
    auto share = parse_layer_share(config.selective_checkpointing);
    TESSERA_CHECK(share, config.selective_checkpointing);
    options.share_numerator = share->numerator;
    options.share_denominator = share->denominator;
  }
  options.policy =
      config.checkpointing_policy == "op" ? CheckpointPolicy::kOp : CheckpointPolicy::kLayer;
  options.regather = parallelism.regather;
  options.offload = config.offload_activations;
  options.horizon = config.activation_loading_horizon;
  return options;
}

// Gathers in flight are bounded to one beside the layer in use, or not bounded: two.
OverlapOptions overlap_options(const RunConfig& config) {
  int ahead = config.limit_all_gathers ? 1 : 2;
  return {config.forward_prefetch ? ahead : 0,
          config.backward_fetch_policy == "backward_pre" ? ahead : 0};
}

}  // namespace

DType compute_dtype(const RunConfig& config) {
  return config.use_fp16 ? DType::kF16 : config.bf16 ? DType::kBF16 : DType::kF32;
}

bool asks_for_validation(const RunConfig& config) {
  return config.eval_only || config.run_validation || config.validation_freq.value_or(0) > 0 ||
         config.compare_baselines;
}

ScheduleOptions schedule_options(const RunConfig& config) {
  ScheduleOptions options;
  options.style = decay_style_from_name(config.lr_decay_style);
  options.lr = config.lr;
  options.min_lr = config.min_lr;
  options.decay_steps = config.lr_decay_iters.value_or(config.max_steps);
  options.warmup = config.warmup;
  options.plateau = config.plateau;
  options.gamma = config.step_lr_gamma;
  return options;
}

OptimizerOptions optimizer_options(const RunConfig& config) {
  return {.name = config.optimizer,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .momentum = config.momentum};
}

ProgramOptions program_options(const RunConfig& config, const Parallelism& parallelism) {
  ProgramOptions options;
  options.parallelism = parallelism;
  options.batch = config.train_batch_size;
  options.length = config.max_context_width;
  options.validation_batch = config.val_batch_size;
  options.compute = compute_dtype(config);
  if (options.compute == DType::kF16) options.loss_scaling = LossScaling{};
  options.document_mask = config.document_mask;
  options.trains = !config.eval_only;
  options.evaluates = asks_for_validation(config);
  options.accumulates = config.gradient_accumulation_steps > 1;
  options.limits_loss = config.loss_spike_policy == "skip" || config.loss_spike_policy == "rewind";
  options.z_loss = config.z_loss;
  options.freeze = config.freeze;
  options.optimizer = optimizer_options(config);
  options.residency = residency_options(config, parallelism);
  options.overlap = overlap_options(config);
  options.far_state = config.cpu_offload;
  options.passes.disabled = config.disable_pass;
  options.passes.dump_directory = config.dump_pass;
  options.passes.dump_format = config.dump_format == "html" ? DumpFormat::kHtml : DumpFormat::kText;
  return options;
}

}  // namespace tessera
