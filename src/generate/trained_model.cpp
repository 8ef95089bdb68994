#include "generate/trained_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/shallow_json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"
#include "hub/pretrained_weights.h"
#include "hub/remote_model.h"
#include "hub/tokenizer_files.h"
#include "models/build_model.h"
#include "models/peft_config.h"
#include "options/lora_options.h"
#include "options/pretrained_source.h"
#include "options/remote_options.h"
#include "weights/adapter_weights.h"
#include "weights/checkpoint_parameters.h"
#include "weights/model_export.h"
#include "weights/model_weights.h"
#include "weights/trained_tokenizer.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// `eos_token_id` of a file of the directory: a number, or a list of them. Empty where it says none.
std::vector<int32_t> end_ids_of_file(const fs::path& file) {
  constexpr uintmax_t kMaxBytes = 1 << 20;
  std::error_code error;
  uintmax_t bytes = fs::file_size(file, error);
  if (error) return {};
  if (bytes > kMaxBytes)
    throw UserError(cat("'", file.string(), "' has ", bytes, " bytes, at most ", kMaxBytes));
  nlohmann::json root = parse_shallow_json(read_file(file), file.string());
  if (!root.is_object()) throw UserError(cat("'", file.string(), "' is not a JSON object"));
  nlohmann::json found = root.value("eos_token_id", nlohmann::json());
  if (!found.is_array()) found = nlohmann::json::array({found});
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : found) {
    if (id.is_null()) continue;
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      throw UserError(cat("'", file.string(), "': eos_token_id must be token ids"));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// Of a directory, by the first of its files that says any.
std::vector<int32_t> end_ids(const fs::path& directory) {
  std::vector<int32_t> ids;
  for (const char* file : {"generation_config.json", "config.json"}) {
    if (ids.empty()) ids = end_ids_of_file(directory / file);
  }
  return ids;
}

// Tokens that it may see at once. What began with another's weights has learned all positions of
// the model, whatever the windows here; what began with random ones those of its windows alone.
int64_t context_of(const RunRecord& record) {
  const int64_t window = record.options.max_context_width,
                positions = record.model.max_context_width;
  if (!record.converted_from.empty()) return positions;
  return base_model_of(record).empty() ? window : std::max(window, positions);
}

TrainedModel open_trained(const fs::path& path, const std::optional<std::string>& tokenizer) {
  auto weights = std::make_shared<CheckpointParameters>(path);
  const RunRecord& record = weights->record();
  TrainedModel trained;
  trained.path = path;
  trained.model = record.model;
  trained.context = context_of(record);
  // What was trained in f16 may not fit bf16's precision; f32 holds both.
  bool bf16 = record.options.bf16 && !record.options.use_fp16;
  trained.compute = bf16 ? DType::kBF16 : DType::kF32;
  trained.tokenizer = tokenizer ? *tokenizer : tokenizer_of(path, record);
  trained.chat_template = record.options.chat_template;
  // Whether "auto" joined them the record does not say.
  trained.documents_joined = record.converted_from.empty() && record.options.packing != "rows";
  fs::path folder = trained.tokenizer;
  if (is_tokenizer_file(folder.filename().string())) folder = folder.parent_path();
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) trained.end_ids = end_ids(folder);
  trained.record = record;
  trained.weights = std::move(weights);
  return trained;
}

TrainedModel open_hugging_face(const fs::path& directory, const RunConfig& options,
                               const std::optional<std::string>& tokenizer) {
  TrainedModel trained;
  trained.path = directory;
  trained.model = read_hugging_face_config(directory);
  trained.context = trained.model.max_context_width;
  trained.compute = options.bf16 ? DType::kBF16 : DType::kF32;
  trained.tokenizer = tokenizer.value_or(directory.string());
  trained.end_ids = end_ids(directory);
  ModelType type = trained.model.model_type;
  auto parameters = build_model(trained.model, 1, 1, ModelHead::kNext).parameters;
  trained.weights = std::make_shared<PretrainedWeights>(directory, family_names(type),
                                                        file_tensors(type, parameters));
  return trained;
}

// A model with the adapters of --lora_adapter.
TrainedModel adapted(TrainedModel trained, const RunConfig& options) {
  if (options.lora_adapter.empty()) return trained;
  if (trained.model.lora.rank > 0) {
    throw UserError(cat("'", trained.path.string(),
                        "' has adapters already: leave out --lora_adapter, or merge them first "
                        "(tessera export --merge_adapter 1)"));
  }
  trained.model.lora = lora_of_adapter(options.lora_adapter, trained.model);
  auto parameters = build_model(trained.model, 1, 1, ModelHead::kNext).parameters;
  trained.weights = std::make_shared<AdaptedWeights>(
      trained.weights,
      std::make_shared<AdapterWeights>(options.lora_adapter, trained.model, parameters));
  return trained;
}

}  // namespace

TrainedModel open_trained_model(const std::string& name, const RunConfig& options,
                                const std::optional<std::string>& tokenizer) {
  std::error_code ignored;
  if (is_in_bucket(name)) {
    if (auto checkpoint = newest_complete_checkpoint(name))
      return adapted(open_trained(*checkpoint, tokenizer), options);
  }
  auto directory = find_model_directory(name, options);
  if (is_remote_model(name)) {
    ModelParts parts{.configuration = true, .tokenizer = !tokenizer, .weights = true};
    directory = fetch_model(name, parts, remote_options(options));
  }
  if (directory && (is_there(*directory / "config.json") || is_there(*directory / kMetaParamsName)))
    return adapted(open_hugging_face(*directory, options, tokenizer), options);
  if (auto checkpoint = newest_complete_checkpoint(name))
    return adapted(open_trained(*checkpoint, tokenizer), options);
  if (directory && is_there(*directory / kPeftConfigName)) {
    throw UserError(cat("'", name, "' is an adapter: give the model that it was made for, and ",
                        "--lora_adapter ", name));
  }
  throw UserError(cat("there is no complete checkpoint in '", name,
                      "', and it is no Hugging Face model of this machine"));
}

void warn_of_other_tokenizer(const std::string& name, const Tokenizer& tokenizer,
                             const TrainedModel& model) {
  if (!model.record) return;
  const std::string other = other_tokenizer_text(name, tokenizer, model.path, *model.record);
  if (!other.empty()) TESSERA_WARN(other);
}

}  // namespace tessera
