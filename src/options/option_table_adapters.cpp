#include "options/option_table_groups.h"

// LoRA: what is trained in the place of a model's own weights.
namespace tessera::option_groups {

std::vector<OptionRow> adapters() {
  return {
      {.name = "lora_rank",
       .field = &RunConfig::lora_rank,
       .help =
           "train low-rank adapters of this rank (LoRA) in the place of the model's own weights, "
           "which stay as they are; 0: none (docs/fine_tuning.md)",
       .minimum = 0,
       .maximum = 65536,
       .on_resume = kRefused},
      {.name = "lora_alpha",
       .field = &RunConfig::lora_alpha,
       .help = "what an adapter adds is multiplied by lora_alpha / lora_rank",
       .minimum = 0,
       .unset = "2 x lora_rank",
       .on_resume = kRefused},
      {.name = "lora_rank_stabilised",
       .aliases = {"use_rslora"},
       .field = &RunConfig::lora_rank_stabilised,
       .help = "multiply by lora_alpha / sqrt(lora_rank) instead",
       .on_resume = kRefused},
      {.name = "lora_dropout",
       .field = &RunConfig::lora_dropout,
       .help = "dropout of what enters the adapters, in training",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .on_resume = kWarned},
      {.name = "lora_targets",
       .aliases = {"lora_target_modules"},
       .field = &RunConfig::lora_targets,
       .help =
           "linear layers that are adapted, by their names or what these end in, separated by "
           "commas or blanks, for example `q_proj,v_proj`; all-linear: every one but the output "
           "matrix",
       .form = ValueForm::kCommaList,
       .unset = "those of PEFT for the family",
       .on_resume = kRefused},
      {.name = "lora_adapter",
       .field = &RunConfig::lora_adapter,
       .help =
           "directory of an adapter as PEFT saves it, which is trained on, or generates with its "
           "model or is exported with it; the other options of adapters are those that it was made "
           "with",
       .scopes = kRunScopes | in(OptionScope::kGenerate) | in(OptionScope::kExport),
       .on_resume = kFree},
      {.name = "merge_adapter",
       .field = &RunConfig::merge_adapter,
       .help =
           "of a model with adapters, export the whole model with what they add, not the adapters "
           "alone",
       .scopes = in(OptionScope::kExport)},
  };
}

}  // namespace tessera::option_groups
