#include "options/model_options.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hub/saved_state.h"
#include "hub/weight_files.h"
#include "models/model_family.h"
#include "models/peft_config.h"
#include "options/lora_options.h"
#include "options/option_rules.h"
#include "options/option_table.h"
#include "options/pretrained_source.h"

namespace tessera {
namespace {

// Options that describe the shape, and with which a complete description needs no help.
constexpr std::string_view kShapeOptions[] = {"model_type",
                                              "vocab_size",
                                              "hidden_width",
                                              "num_layers",
                                              "num_heads",
                                              "num_key_value_heads",
                                              "head_dim",
                                              "intermediate_size",
                                              "tie_word_embeddings",
                                              "sliding_window",
                                              "rotary_pct",
                                              "rotary_emb_base",
                                              "bias",
                                              "gelu",
                                              "num_local_experts",
                                              "num_experts_per_tok",
                                              "model_name",
                                              "model_size"};

// Its directory may hold the configuration of its weights; if not, the options describe the model.
constexpr std::string_view kWeightsFile = "pretrained_checkpoint_file";

constexpr std::string_view kSources[] = {"hf_pretrained_model_name_or_dir", "pretrained_model_name",
                                         "model_config", "model_name", "model_size"};

// Copies the value of a given option over the preset's.
template <class T, class U>
void override_with(const ParsedOptions& parsed, std::string_view option, T& field, const U& value) {
  if (parsed.is_given(option)) field = value;
}

bool has(std::span<const std::string_view> options, std::string_view option) {
  return std::ranges::find(options, option) != options.end();
}

bool takes(const ModelConfig& model, std::string_view option) {
  return has(model_family(model.model_type).options, option);
}

// The families whose option it is, "mistral and mixtral".
std::string owners(std::string_view option) {
  std::vector<std::string> names;
  for (const ModelFamily* family : kModelFamilies) {
    if (has(family->options, option)) names.emplace_back(family->name);
  }
  return join(names, " and ");
}

void warn_of_other_families(ParsedOptions& parsed, const ModelConfig& model, bool described) {
  for (const ModelFamily* family : kModelFamilies) {
    if (!family->build) continue;
    for (std::string_view option : family->options) {
      bool told = described && has(kShapeOptions, option);  // that it is ignored
      if (!parsed.is_given(option) || takes(model, option) || told) continue;
      if (value_text(parsed.config, *find_option(option)) == "None") continue;  // as if left out
      parsed.warnings.push_back(cat("--", option, " has no effect: it belongs to ", owners(option),
                                    ", the model is ", name(model.model_type)));
    }
  }
}

// What is so in every model of the family, and what a model of so few layers has none of.
void warn_of_shape(ParsedOptions& parsed, const ModelConfig& model, bool described) {
  const RunConfig& c = parsed.config;
  const ModelFamily& family = model_family(model.model_type);
  auto idle = [&](std::string_view option, const std::string& why) {
    if (parsed.is_given(option))
      parsed.warnings.push_back(cat("--", option, " has no effect: ", why));
  };
  if (!described && family.mlp_widths > 0 && c.intermediate_size != model.intermediate_size)
    idle("intermediate_size", cat("the MLP of ", family.name, " is always ", family.mlp_widths,
                                  " times as wide as the model"));
  if (!described && family.always_tied && !c.tie_word_embeddings)
    idle("tie_word_embeddings", cat("the embeddings of ", family.name, " are always tied"));
  if (c.offload_activations && model.num_layers <= c.activation_loading_horizon)
    idle("offload_activations",
         cat("the last ", c.activation_loading_horizon,
             " layers stay (--activation_loading_horizon), and the model has ", model.num_layers));
}

// A window may be shorter than the model's positions, but not longer where those are learned or
// turn by other angles behind the last.
void fit_window(ParsedOptions& parsed, const ModelConfig& model) {
  int64_t& window = parsed.config.max_context_width;
  if (window == model.max_context_width) return;
  bool given = parsed.is_given("max_context_width");
  std::optional<int64_t> longest = longest_window(model);
  std::string_view positions = model_family(model.model_type).learned_positions
                                   ? "learned positions"
                                   : "positions before its dynamic rope changes all frequencies";
  if (longest && window > *longest) {
    if (given) {
      throw UserError(
          cat("--max_context_width ", window, ": the model has only ", *longest, " ", positions));
    }
    window = *longest;
    parsed.notes.push_back(cat("windows of ", window, " tokens, the model's ", positions));
  } else if (!given) {
    parsed.notes.push_back(
        cat("windows of ", window,
            " tokens, the default of --max_context_width; the model is made for ",
            model.max_context_width));
  }
}

// What is wrong with a model that options alone describe is wrong on the command line.
template <class Work>
auto of_options(const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    throw UsageError(error.what());
  }
}

void warn_of_ignored(ParsedOptions& parsed, const std::vector<std::string>& options,
                     std::string_view description) {
  if (options.empty()) return;
  parsed.warnings.push_back(
      cat("ignored, since ", description, " describes the model: ", join(options, ", ")));
}

void apply_dropout(const ParsedOptions& parsed, ModelConfig& model) {
  const RunConfig& c = parsed.config;
  if (takes(model, "resid_pdrop"))
    override_with(parsed, "resid_pdrop", model.resid_pdrop, c.resid_pdrop);
  if (takes(model, "embd_pdrop"))
    override_with(parsed, "embd_pdrop", model.embd_pdrop, c.embd_pdrop);
  if (takes(model, "attn_pdrop"))
    override_with(parsed, "attn_pdrop", model.attn_pdrop, c.attn_pdrop);
}

void apply_family_options(const ParsedOptions& parsed, ModelConfig& model) {
  const RunConfig& c = parsed.config;
  const ModelFamily& family = model_family(model.model_type);
  model.initializer_range = c.initializer_range;
  if (takes(model, "rotary_pct")) model.rotary_pct = c.rotary_pct;
  if (takes(model, "rotary_emb_base")) model.rope_theta = static_cast<double>(c.rotary_emb_base);
  if (takes(model, "bias")) override_with(parsed, "bias", model.bias, c.bias);
  if (takes(model, "gelu")) override_with(parsed, "gelu", model.tanh_gelu, c.gelu == "tanh");
  apply_dropout(parsed, model);
  if (!family.always_tied)
    override_with(parsed, "tie_word_embeddings", model.tie_word_embeddings, c.tie_word_embeddings);
  if (takes(model, "num_local_experts")) {
    model.num_local_experts = c.num_local_experts;
    model.num_experts_per_tok = c.num_experts_per_tok;
  }
  if (!c.sliding_window) return;
  if (!takes(model, "sliding_window")) {
    throw UsageError(cat("--sliding_window belongs to ", owners("sliding_window"), ", not to ",
                         name(model.model_type),
                         ": a family beside these that has windows takes them from its config.json "
                         "(--model_config)"));
  }
  model.sliding_window = c.sliding_window;
}

// Given shape options win over those of a preset. A preset's heads keep their width where neither
// their number nor the model's width is given.
void apply_given_shape(const ParsedOptions& parsed, ModelConfig& model) {
  const RunConfig& c = parsed.config;
  int64_t heads_before = model.num_heads, head_dim = model.head_dim;
  override_with(parsed, "vocab_size", model.vocab_size, c.vocab_size);
  override_with(parsed, "max_context_width", model.max_context_width, c.max_context_width);
  override_with(parsed, "hidden_width", model.hidden_width, c.hidden_width);
  override_with(parsed, "num_layers", model.num_layers, c.num_layers);
  override_with(parsed, "num_heads", model.num_heads, c.num_heads);
  override_with(parsed, "intermediate_size", model.intermediate_size, c.intermediate_size);
  bool ungrouped = model.num_key_value_heads == heads_before;
  if (c.num_key_value_heads) {
    model.num_key_value_heads = *c.num_key_value_heads;
  } else if (parsed.is_given("num_key_value_heads") || ungrouped) {
    model.num_key_value_heads = model.num_heads;
  }
  derive_shape(model);
  if (!parsed.is_given("hidden_width") && !parsed.is_given("num_heads")) model.head_dim = head_dim;
  model.head_dim = c.head_dim.value_or(model.head_dim);
}

ModelConfig from_options(const ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  ModelConfig model = family_defaults(model_type_from_name(c.model_type));
  model.vocab_size = c.vocab_size;
  model.max_context_width = c.max_context_width;
  model.hidden_width = c.hidden_width;
  model.num_layers = c.num_layers;
  model.num_heads = c.num_heads;
  model.num_key_value_heads = c.num_key_value_heads.value_or(c.num_heads);
  model.intermediate_size = c.intermediate_size;
  if (!c.model_size.empty()) {
    apply_preset_size(model, c.model_size);
    apply_given_shape(parsed, model);
  }
  derive_shape(model);
  model.head_dim = c.head_dim.value_or(model.head_dim);
  apply_family_options(parsed, model);
  return model;
}

ModelConfig from_preset(const ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  ModelConfig model = preset_by_name(c.model_name);
  if (parsed.is_given("model_type") && c.model_type != name(model.model_type)) {
    throw UsageError(cat("--model_name ", c.model_name, " is a ", name(model.model_type),
                         ": it contradicts --model_type ", c.model_type));
  }
  apply_given_shape(parsed, model);
  apply_family_options(parsed, model);
  return model;
}

// Of what is no model, but comes from one.
void refuse_other_directory(const std::filesystem::path& directory) {
  for (std::string_view name : {std::string_view("config.json"), kMetaParamsName})
    if (is_there(directory / name)) return;
  refuse_checkpoint(directory);
  if (is_there(directory / kPeftConfigName)) {
    throw UserError(cat("'", directory.string(),
                        "' is an adapter: give the model that it was made for, and --lora_adapter ",
                        directory.string()));
  }
}

// A file, a directory, a model in Hugging Face's cache or, where it is not a file that is asked
// for, the name of a preset.
ModelConfig from_description(ParsedOptions& parsed, std::string_view source,
                             const std::string& value) {
  std::error_code ignored;
  bool is_file = source == "model_config" || source == kWeightsFile ||
                 std::filesystem::is_regular_file(value, ignored);
  std::optional<std::filesystem::path> found = value;
  const bool has_weights = source == "hf_pretrained_model_name_or_dir";
  if (!is_file || has_weights) found = find_model_directory(value, parsed.config);
  if (found && has_weights) refuse_other_directory(*found);
  std::optional<ModelConfig> model;
  if (found)
    model = read_hugging_face_config(*found);
  else
    model = find_preset(value);
  if (!model) {
    throw UserError(cat("--", source, " ", value,
                        " is neither a directory nor a model in Hugging Face's cache of this "
                        "machine nor one of ",
                        join(preset_names(), ", ")));
  }
  std::vector<std::string> ignored_options;
  for (std::string_view option : kShapeOptions) {
    if (option == source) continue;
    if (parsed.is_given(option)) ignored_options.push_back(cat("--", option));
  }
  warn_of_ignored(parsed, ignored_options, cat("--", source));
  const RunConfig& c = parsed.config;
  override_with(parsed, "initializer_range", model->initializer_range, c.initializer_range);
  // A shorter window does not make it another model; a longer one that it cannot have is refused.
  if (parsed.is_given("max_context_width") && !longest_window(*model))
    model->max_context_width = std::max(model->max_context_width, c.max_context_width);
  apply_dropout(parsed, *model);
  return *model;
}

// A model of which all is known: the run that is resumed wins over what it once started from.
std::optional<ModelConfig> from_checkpoint(ParsedOptions& parsed) {
  RunConfig& c = parsed.config;
  auto resumed = resumed_fine_tuning(c);
  if (resumed) {
    if (!parsed.is_given("tokenizer")) c.tokenizer = resumed->options.tokenizer;
    return resumed->model;
  }
  if (!c.finetune || c.resume_from_checkpoint.empty()) return {};
  try {
    check_fine_tuning_source(c);
  } catch (const UsageError& error) {
    for (const std::string& directory : c.resume_from_checkpoint) {
      if (auto torch = find_torch_checkpoint(directory, 2)) {
        check_torch_file(*torch);
        throw UserError(cat("'", torch->string(),
                            "' is a checkpoint of PyTorch's: `tessera checkpoint convert ",
                            torch->string(), " DIR` makes one in DIR that is resumed"));
      }
    }
    throw UsageError(cat("there is no checkpoint in '", join(c.resume_from_checkpoint, "', '"),
                         "', so ", error.what()));
  }
  return {};
}

// What is given beside a checkpoint that is found: adapters and dropout hold, as without --finetune
// (the run compares them), and other options that say another model are ignored.
void apply_beside_checkpoint(ParsedOptions& parsed, ModelConfig& model) {
  const RunConfig& c = parsed.config;
  RunConfig of_checkpoint = c;
  set_shape(of_checkpoint, model);
  std::vector<std::string> ignored;
  for (std::string_view option : kShapeOptions) {
    const OptionRow& row = *find_option(option);
    if (parsed.is_given(option) && value_text(c, row) != value_text(of_checkpoint, row))
      ignored.push_back(cat("--", option));
  }
  if (c.lora_rank == 0) {
    for (std::string_view option : {"lora_alpha", "lora_rank_stabilised", "lora_targets"})
      if (parsed.is_given(option)) ignored.push_back(cat("--", option));
  }
  warn_of_ignored(parsed, ignored, "the checkpoint that is resumed");
  apply_dropout(parsed, model);
  if (c.lora_rank > 0 && c.lora_adapter.empty())
    apply_lora_options(parsed, model);
  else
    override_with(parsed, "lora_dropout", model.lora.dropout, c.lora_dropout);
}

void take_tokenizer(ParsedOptions& parsed) {
  if (parsed.is_given("tokenizer")) return;
  auto directory = find_pretrained_tokenizer(parsed.config);
  if (!directory) return;
  parsed.config.tokenizer = directory->string();
  parsed.notes.push_back(cat("tokenizer: that of ", directory->string()));
}

void check_built(ParsedOptions& parsed, const ModelConfig& model) {
  if (model_family(model.model_type).build) return;
  std::string_view family = name(model.model_type);
  if (parsed.scope != OptionScope::kPlan) {
    std::vector<std::string_view> built;
    for (const ModelFamily* other : kModelFamilies) {
      if (other->build) built.push_back(other->name);
    }
    throw UserError(cat("models of type ", family, " are not built yet; --model_type can be ",
                        join(built, ", ")));
  }
  if (!parsed.is_given("model_type")) {
    parsed.notes.push_back(
        cat("models of type ", family, " are not built yet: tessera train refuses them"));
  }
}

}  // namespace

std::string_view model_source(const ParsedOptions& parsed) {
  std::vector<std::string_view> found;
  for (std::string_view source : kSources) {
    if (value_text(parsed.config, *find_option(source)) != "None") found.push_back(source);
  }
  if (found.size() > 1) {
    throw UsageError(
        cat("--", found[0], " and --", found[1], " both describe the model: give one"));
  }
  return found.empty() ? "" : found[0];
}

void set_shape(RunConfig& config, const ModelConfig& model) {
  config.model_type = name(model.model_type);
  config.vocab_size = model.vocab_size;
  config.hidden_width = model.hidden_width;
  config.num_layers = model.num_layers;
  config.num_heads = model.num_heads;
  config.num_key_value_heads = model.num_key_value_heads;
  if (config.head_dim || model.head_dim * model.num_heads != model.hidden_width)
    config.head_dim = model.head_dim;
  config.intermediate_size = model.intermediate_size;
  config.tie_word_embeddings = model.tie_word_embeddings;
  config.sliding_window = model.sliding_window;
  config.bias = model.bias;
  config.gelu = model.tanh_gelu ? "tanh" : "exact";
  config.rotary_pct = model.rotary_pct;
  config.rotary_emb_base = static_cast<int64_t>(model.rope_theta);
  config.num_local_experts = model.num_local_experts;
  config.num_experts_per_tok = model.num_experts_per_tok;
}

std::span<const std::string_view> shape_options() { return kShapeOptions; }

ModelConfig resolve_model(ParsedOptions& parsed) {
  std::string_view source = model_source(parsed);
  bool described = false;
  ModelConfig model;
  auto beside = configuration_of_file(parsed.config);
  auto resumed = from_checkpoint(parsed);
  if (resumed) {
    model = *resumed;
  } else if (beside && (source.empty() || source == "model_name" || source == "model_size")) {
    described = true;
    model = from_description(parsed, kWeightsFile, beside->string());
  } else if (source == "model_name") {
    model = of_options([&] { return from_preset(parsed); });
  } else if (source.empty() || source == "model_size") {
    model = of_options([&] { return from_options(parsed); });
  } else {
    described = true;
    model = from_description(parsed, source, value_text(parsed.config, *find_option(source)));
  }
  if (!resumed) take_tokenizer(parsed);
  if (resumed || described)
    check(model);
  else
    of_options([&] { check(model); });
  check_built(parsed, model);
  if (resumed)
    apply_beside_checkpoint(parsed, model);
  else
    apply_lora_options(parsed, model);
  check(model);
  warn_of_other_families(parsed, model, described);
  warn_of_shape(parsed, model, described);
  fit_window(parsed, model);
  return model;
}

}  // namespace tessera
