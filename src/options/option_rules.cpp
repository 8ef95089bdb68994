#include "options/option_rules.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/local_output.h"
#include "base/text.h"
#include "checkpoint/places.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "options/checkpoint_tiers.h"
#include "options/injected_fault.h"
#include "remote/s3_files.h"

namespace tessera {
namespace {

// Where the weights of a fine-tuning run come from must be said exactly once.
void check_fine_tuning(ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  bool by_name = !c.pretrained_model_name.empty(), by_file = !c.pretrained_checkpoint_file.empty();
  bool by_hub = !c.hf_pretrained_model_name_or_dir.empty();
  bool load_dir = !c.finetune_checkpoint_load_dir.empty();
  bool resume = !c.resume_from_checkpoint.empty();
  if (by_name && by_file) {
    throw UsageError(
        "--pretrained_model_name and --pretrained_checkpoint_file contradict each other: give one "
        "source");
  }
  if (by_hub && (by_name || by_file)) {
    throw UsageError(cat("--hf_pretrained_model_name_or_dir and --",
                         by_name ? "pretrained_model_name" : "pretrained_checkpoint_file",
                         " contradict each other: give one source"));
  }
  if ((by_name || by_file) && !c.finetune) {
    throw UsageError(cat("--", by_name ? "pretrained_model_name" : "pretrained_checkpoint_file",
                         " needs --finetune 1"));
  }
  if (load_dir && !by_name) {
    throw UsageError("--finetune_checkpoint_load_dir needs --pretrained_model_name");
  }
  if (c.finetune && resume) {
    parsed.notes.push_back(
        "if a checkpoint is found by --resume_from_checkpoint it wins over --finetune: pretrained "
        "sources are not loaded");
    return;
  }
  check_fine_tuning_source(c);
}

void check_final_model(ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  if (!c.save_final_model && !c.model_dir.empty())
    parsed.warnings.push_back("--model_dir has no effect without --save_final_model");
  if (c.save_final_model && c.eval_only)
    parsed.warnings.push_back("--save_final_model has no effect with --eval_only");
  if (c.save_final_model && c.model_dir.empty() && c.checkpoint_dir.empty())
    throw UsageError("--save_final_model needs --model_dir or --checkpoint_dir");
  const bool in_bucket = !c.checkpoint_dir.empty() && is_in_bucket(c.checkpoint_dir[0]);
  if (c.save_final_model && c.model_dir.empty() && in_bucket)
    throw UsageError("--save_final_model writes to this machine: give --model_dir");
  require_local_output("--model_dir", c.model_dir);
}

// Joined to a name without a bucket, the first part of a path would be taken for one.
void check_buckets(const RunConfig& c) {
  auto check = [](std::string_view option, const std::vector<std::string>& places) {
    for (const std::string& place : places) {
      if (!is_in_bucket(place)) continue;
      try {
        parse_s3_name(place);
      } catch (const UserError& error) {
        throw UsageError(cat("--", option, ": ", error.what()));
      }
    }
  };
  check("checkpoint_dir", c.checkpoint_dir);
  check("resume_from_checkpoint", c.resume_from_checkpoint);
}

void apply_tensor_parallelism(ParsedOptions& parsed) {
  RunConfig& c = parsed.config;
  if (c.tensor_parallel_degree <= 1 || c.use_smp_implementation) return;
  c.use_smp_implementation = true;
  parsed.notes.push_back(cat(
      "Tensor parallelism is enabled as tensor_parallel_degree is set to ",
      c.tensor_parallel_degree,
      " > 1. Switching use_smp_implementation to 1 so we can use SMP optimized implementation."));
}

// A library that only one cloud has.
void apply_backend(ParsedOptions& parsed) {
  std::string& backend = parsed.config.distributed_backend;
  if (backend != "smddp") return;
  backend = "nccl";
  parsed.warnings.push_back("--distributed_backend smddp is not built: nccl is used in its place");
}

// No steps are a run that saves or evaluates what it has loaded, but rates need a length.
void check_schedule(const RunConfig& c) {
  if (c.max_steps == 0 && !c.lr_decay_iters) {
    throw UsageError(
        "--max_steps 0 leaves the learning rate without a schedule: give at least 1, or "
        "--lr_decay_iters beside it to load a model and train nothing");
  }
}

// What only other curves have.
void check_curve(ParsedOptions& parsed) {
  const std::string& style = parsed.config.lr_decay_style;
  auto idle = [&](std::string_view option) {
    if (parsed.is_given(option))
      parsed.warnings.push_back(cat("--", option, " has no effect with --lr_decay_style ", style));
  };
  if (!has_floor(decay_style_from_name(style))) {
    idle("min_lr");
    idle("warmup");
  }
  if (style != "plateau" && parsed.config.plateau != 0) idle("plateau");
  if (style != "step") idle("step_lr_gamma");
}

void check_data(ParsedOptions& parsed) {
  const std::string_view read = parsed.config.use_synthetic_data     ? "use_synthetic_data"
                                : !parsed.config.dataset_mix.empty() ? "dataset_mix"
                                : parsed.is_given("training_dir")    ? "training_dir"
                                                                     : "dataset";
  for (std::string_view option : {"dataset", "training_dir", "dataset_mix"}) {
    if (option == read) break;
    if (parsed.is_given(option))
      parsed.warnings.push_back(
          cat("--", option, " is not read: --", read, " is given in its place"));
  }
}

// More is known when the data are (TrainingRun::check_baselines).
void check_baselines(const RunConfig& c) {
  if (!c.compare_baselines) return;
  const std::string other = c.use_synthetic_data       ? "use_synthetic_data"
                            : c.dataset_mix.size() > 1 ? "dataset_mix"
                            : c.streaming == "on"      ? "streaming on"
                            : c.packing != "auto" && c.packing != "concatenate"
                                ? "packing " + c.packing
                                : "";
  if (!other.empty())
    throw UsageError(
        cat("--compare_baselines needs training text of one data set, joined to "
            "windows: leave out --",
            other));
}

void check_precision(const ParsedOptions& parsed) {
  // --mixed_precision asks for either.
  const bool asks_for_bf16 = std::ranges::any_of(
      parsed.spellings, [](const std::string& spelling) { return spelling.ends_with("bf16"); });
  if (parsed.config.use_fp16 && parsed.config.bf16 && asks_for_bf16)
    throw UsageError("--bf16 and --use_fp16 contradict each other: give one");
}

void warn_idle(ParsedOptions& parsed, std::string_view option, std::string_view needs) {
  if (parsed.is_given(option))
    parsed.warnings.push_back(cat("--", option, " has no effect without --", needs));
}

// Options that say how something is done which is not done.
void check_residency(ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  if (!c.activation_checkpointing) {
    warn_idle(parsed, "selective_checkpointing", "activation_checkpointing");
    warn_idle(parsed, "checkpointing_policy", "activation_checkpointing");
  }
  if (c.metrics_file.empty()) warn_idle(parsed, "data_hash", "metrics_file");
  if (c.tensorboard_dir.empty() && !c.use_wandb)
    warn_idle(parsed, "histogram_freq", "tensorboard_dir");
  if (!c.offload_activations)
    warn_idle(parsed, "activation_loading_horizon", "offload_activations");
}

void check_device(const ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  if (c.device_type != "xla" || !(c.cpu_offload || c.offload_activations)) return;
  throw UsageError(cat("--", c.cpu_offload ? "cpu_offload" : "offload_activations",
                       " is for --device_type cpu and cuda: on XLA nothing lies elsewhere"));
}

void check_saving(ParsedOptions& parsed) {
  if (!parsed.config.checkpoint_dir.empty()) return;
  for (std::string_view option : {"best_val_loss", "busy_checkpoint", "num_kept_checkpoints"})
    warn_idle(parsed, option, "checkpoint_dir");
}

void check_guards(ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  for (const std::string& fault : c.inject) parse_injected_fault(fault);
  if (c.loss_spike_policy == "rewind" && (c.checkpoint_dir.empty() || !c.save_ckpt) && !c.eval_only)
    throw UsageError("--loss_spike_policy rewind needs --checkpoint_dir, to which it goes back");
  if (c.loss_spike_policy == "none") {
    warn_idle(parsed, "loss_spike_threshold", "loss_spike_policy");
    warn_idle(parsed, "loss_spike_window", "loss_spike_policy");
  }
  if (c.loss_spike_policy != "rewind")
    warn_idle(parsed, "max_loss_spike_rewinds", "loss_spike_policy rewind");
}

// What only other optimizers have.
void check_optimizer(ParsedOptions& parsed) {
  const std::string& chosen = parsed.config.optimizer;
  const auto& own = optimizer_record(chosen).options;
  std::set<std::string_view> said;
  for (const OptimizerRecord& other : optimizers()) {
    for (std::string_view option : other.options) {
      bool idle = parsed.is_given(option) && std::ranges::find(own, option) == own.end();
      if (idle && said.insert(option).second)
        parsed.warnings.push_back(cat("--", option, " has no effect with --optimizer ", chosen));
    }
  }
}

// Whether the value of a given option would change something that is not built.
bool needs_unbuilt(const RunConfig& config, const OptionRow& row) {
  std::string value = value_text(config, row);
  for (const OptionValue& known : row.values) {
    if (known.name == value && !known.built) return true;
  }
  return row.status == OptionStatus::kNotBuilt && value != value_text(RunConfig{}, row);
}

void report_status(ParsedOptions& parsed) {
  std::vector<std::string> unbuilt;
  for (const OptionRow& row : option_table()) {
    if (!parsed.is_given(row.name)) continue;
    if (row.name == "fp8" && !parsed.config.fp8) continue;  // that is what there is
    if (row.status == OptionStatus::kNoEffect) {
      parsed.warnings.push_back(cat("--", row.name, " has no effect: ", row.reason));
    }
    if (needs_unbuilt(parsed.config, row)) {
      unbuilt.push_back(cat("--", row.name, "=", value_text(parsed.config, row)));
    }
  }
  if (unbuilt.empty()) return;
  if (kPlanScopes & in(parsed.scope)) {
    for (const std::string& option : unbuilt) {
      parsed.notes.push_back(cat(option, " is not built yet: tessera train refuses it"));
    }
    return;
  }
  throw UserError(cat("not built yet: ", join(unbuilt, ", "), "; leave ",
                      unbuilt.size() == 1 ? "it" : "them", " out (tessera plan accepts ",
                      unbuilt.size() == 1 ? "it" : "them", ")"));
}

}  // namespace

void check_fine_tuning_source(const RunConfig& c) {
  bool by_name = !c.pretrained_model_name.empty();
  bool source = by_name || !c.pretrained_checkpoint_file.empty() ||
                !c.hf_pretrained_model_name_or_dir.empty();
  if (c.finetune && !source) {
    throw UsageError("--finetune 1 needs --pretrained_model_name or --pretrained_checkpoint_file");
  }
  if (by_name && c.finetune_checkpoint_load_dir.empty()) {
    throw UsageError(
        "--pretrained_model_name gives the configuration only: --finetune_checkpoint_load_dir with "
        "the weights is required");
  }
}

void apply_option_rules(ParsedOptions& parsed) {
  check_fine_tuning(parsed);
  check_final_model(parsed);
  check_buckets(parsed.config);
  checkpoint_tiers(parsed.config);
  apply_tensor_parallelism(parsed);
  apply_backend(parsed);
  check_schedule(parsed.config);
  check_curve(parsed);
  check_data(parsed);
  check_baselines(parsed.config);
  check_precision(parsed);
  check_residency(parsed);
  check_device(parsed);
  check_saving(parsed);
  check_guards(parsed);
  check_optimizer(parsed);
  report_status(parsed);
}

}  // namespace tessera
