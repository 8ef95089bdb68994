#include "options/pretrained_source.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hub/local_cache.h"
#include "hub/tokenizer_files.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// A directory, that of a file, or the model of that name in the cache.
std::optional<fs::path> directory_of(const std::string& name, const RunConfig& config) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return name;
  if (fs::is_regular_file(name, ignored)) return fs::absolute(name, ignored).parent_path();
  return find_cached_model(name, config.hf_home);
}

}  // namespace

std::optional<fs::path> find_model_directory(const std::string& name, const RunConfig& config) {
  const fs::path file = fs::path(name).filename();
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored) && file != "config.json" && file != kMetaParamsName) {
    throw UserError(cat("'", name, "' is a file, and a model is a directory: give '",
                        fs::absolute(name).parent_path().string(),
                        "' or another; weights alone, to train on from them, are --finetune 1 "
                        "--pretrained_checkpoint_file ",
                        name));
  }
  return directory_of(name, config);
}

std::optional<fs::path> find_pretrained_weights(const RunConfig& config) {
  const std::string& name = config.hf_pretrained_model_name_or_dir;
  if (!name.empty()) {
    if (auto directory = find_model_directory(name, config)) return directory;
    throw UserError(cat("--hf_pretrained_model_name_or_dir ", name,
                        " is neither a directory nor a model in Hugging Face's cache of this "
                        "machine (",
                        config.hf_home.empty() ? "~/.cache/huggingface" : config.hf_home,
                        "): give hf://", name,
                        ", which is fetched from the hub, or fetch it first with `hf download ",
                        name, "`, or give the directory with its files"));
  }
  if (!config.finetune) return {};
  if (!config.pretrained_checkpoint_file.empty()) return config.pretrained_checkpoint_file;
  return config.finetune_checkpoint_load_dir;
}

std::optional<fs::path> configuration_of_file(const RunConfig& config) {
  if (!config.finetune || config.pretrained_checkpoint_file.empty()) return {};
  const fs::path weights = config.pretrained_checkpoint_file;
  std::error_code ignored;
  const fs::path directory = fs::is_directory(weights, ignored) ? weights : weights.parent_path();
  for (std::string_view name : {std::string_view("config.json"), kMetaParamsName}) {
    fs::path beside = directory / name;
    if (is_file(beside)) return beside;
  }
  return {};
}

std::optional<RunRecord> resumed_fine_tuning(const RunConfig& config) {
  if (!config.finetune || config.resume_from_checkpoint.empty()) return {};
  auto found = newest_recorded_run(config.resume_from_checkpoint);
  return found ? std::optional(found->record) : std::nullopt;
}

std::optional<fs::path> find_pretrained_tokenizer(const RunConfig& config) {
  std::vector<std::optional<fs::path>> places;
  auto add = [&](const std::string& name) {
    if (!name.empty()) places.push_back(directory_of(name, config));
  };
  add(config.hf_pretrained_model_name_or_dir);
  if (config.finetune) {
    add(config.pretrained_checkpoint_file);
    add(config.finetune_checkpoint_load_dir);
    add(config.pretrained_model_name);
  }
  for (const auto& place : places) {
    if (place && has_tokenizer(*place)) return place;
  }
  return {};
}

}  // namespace tessera
