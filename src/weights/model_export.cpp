#include "weights/model_export.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "hub/tokenizer_files.h"
#include "hub/weight_index.h"
#include "hub/weight_writer.h"
#include "models/build_model.h"
#include "models/model_family.h"
#include "models/peft_config.h"
#include "tokenizer/tokenizer.h"
#include "weights/adapter_weights.h"
#include "weights/model_weights.h"
#include "weights/tokenizer_export.h"
#include "weights/zeros_elsewhere.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

std::vector<Parameter> parameters_of(const ModelConfig& model) {
  return build_model(model, 1, 1, ModelHead::kLogits).parameters;
}

// The adapters of a source under the names that PEFT has for them.
class PeftNames : public ParameterSource {
 public:
  explicit PeftNames(const ParameterSource& source) : source_(source) {}
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    source_.read(parameter.substr(kPeftPrefix.size()), first, values);
  }
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override {
    source_.advise(parameter.substr(kPeftPrefix.size()), first, count, advice);
  }

 private:
  const ParameterSource& source_;
};

// Without a slash at its end, so that it can be named and renamed; where a link leads.
fs::path plain(const fs::path& directory) {
  fs::path path = directory.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  return fs::is_symlink(path, error) ? fs::weakly_canonical(path) : path;
}

bool is_mount_point(const fs::path& directory) {
  struct stat here {};
  struct stat above {};
  return ::stat(directory.c_str(), &here) == 0 && ::stat((directory / "..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

// Where the files of a directory are written before it takes its place, or what is there: beside
// it.
fs::path aside_of(const fs::path& final) {
  if (final.has_parent_path()) make_directories(final.parent_path());
  remove_leftovers_of(final);
  fs::path aside = final;
  return aside += ".tmp-" + unique_suffix();
}

void move_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  throw UserError(
      cat("cannot move '", from.string(), "' to '", to.string(), "': ", error.message()));
}

// What somebody may have edited since an earlier export.
void warn_of_replaced_files(const fs::path& directory, const fs::path& made) {
  std::vector<std::string> replaced;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!is_tokenizer_file(name)) continue;
    if (!is_there(made / name) || read_file(entry.path()) != read_file(made / name))
      replaced.push_back(cat("'", name, "'"));
  }
  if (replaced.empty()) return;
  std::ranges::sort(replaced);
  TESSERA_WARN(cat("'", directory.string(),
                   "' is written anew; of the tokenizer's files there are replaced or removed: ",
                   join(replaced, ", ")));
}

// At no moment there is no directory, where the file system can exchange two.
void put_in_place(const fs::path& made, const fs::path& directory) {
  constexpr std::string_view kReplaced = ".replaced-";
  std::error_code ignored;
  fs::path replaced;
  if (fs::exists(directory, ignored)) {
    replaced = made;
    if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) != 0) {
      replaced = directory;
      replaced += cat(kReplaced, unique_suffix());
      move_directory(directory, replaced);
    }
  }
  if (replaced != made) move_directory(made, directory);
  sync_directory(directory.parent_path());
  if (!replaced.empty()) fs::remove_all(replaced, ignored);
  remove_leftovers_of(directory, kReplaced);
}

}  // namespace

void check_can_be_replaced(const fs::path& directory) {
  std::error_code ignored;
  const bool current = fs::equivalent(directory, fs::current_path(ignored), ignored);
  if (!current && !is_mount_point(directory)) return;
  throw UserError(cat("'", directory.string(), "' is ",
                      current ? "the current directory" : "a mount point",
                      ", in whose place no finished one can be moved: give a new directory in it"));
}

void check_export_directory(const fs::path& directory, bool adapters) {
  fs::path path = plain(directory);
  std::error_code ignored;
  if (!is_there(path)) return;
  check_can_be_replaced(path);
  if (fs::is_directory(path, ignored) && fs::is_empty(path, ignored)) return;
  if (adapters && is_there(path / "config.json")) {
    throw UserError(cat("'", path.string(),
                        "' holds a whole model, which adapters do not replace: give another "
                        "directory"));
  }
  std::string foreign;
  bool has_weights = false;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    std::string name = entry.path().filename().string();
    bool ours = name == "config.json" || name == kWeightIndexName || is_tokenizer_file(name);
    ours = ours || name == kPeftConfigName;
    if ((name.starts_with("model") && name.ends_with(".safetensors")) || name == kPeftWeightsName) {
      SafetensorsMetadata metadata = SafetensorsFile(entry.path()).metadata();
      ours = has_weights = metadata[std::string(kWriterKey)] == kWriter;
    }
    if (!ours) foreign = name;
  }
  if (has_weights && foreign.empty()) return;
  throw UserError(cat("'", path.string(), "' is there, and ",
                      foreign.empty() ? "no model that was written by tessera"
                                      : cat("'", foreign, "' in it was not written by tessera"),
                      ", so it is not overwritten: give another directory"));
}

void check_can_be_written(const fs::path& directory) {
  TemporaryDirectory aside(aside_of(plain(directory)));
}

void export_adapter(const fs::path& directory, const ModelConfig& model,
                    const ParameterSource& source, const ExportOptions& options) {
  check_export_directory(directory, true);
  const fs::path final = plain(directory);
  TemporaryDirectory temporary(aside_of(final));
  write_file_atomic(temporary.path() / kPeftConfigName,
                    peft_config_json(model, options.base_model));
  const std::vector<FileTensor> tensors = adapter_tensors(model.model_type, parameters_of(model));
  write_weight_file(temporary.path() / kPeftWeightsName, tensors, PeftNames(source), options.dtype);
  put_in_place(temporary.path(), final);
  int64_t count = 0;
  for (const FileTensor& tensor : tensors) count += num_elements(tensor.shape);
  TESSERA_INFO(cat("Wrote ", final.string(), ": adapters of rank ", model.lora.rank, ", ",
                   format_count(static_cast<double>(count)), " parameters in ",
                   name(options.dtype)));
}

void refuse_merge() {
  throw UserError("--merge_adapter: this model was trained without adapters (--lora_rank)");
}

void export_trained(const fs::path& directory, const ModelConfig& model,
                    const ParameterSource& source, const ExportOptions& options) {
  if (model.lora.rank == 0) {
    if (options.merge_adapter) refuse_merge();
    return export_model(directory, model, source, options);
  }
  if (!options.merge_adapter) return export_adapter(directory, model, source, options);
  ModelConfig merged = model;
  merged.lora = {};
  export_model(directory, merged, MergedWeights(source, model, parameters_of(model)), options);
}

std::string base_model_of(const RunRecord& record) {
  if (record.base_model) return *record.base_model;
  if (!record.converted_from.empty()) return record.converted_from;
  const RunConfig& options = record.options;
  for (const std::string* name :
       {&options.hf_pretrained_model_name_or_dir, &options.finetune_checkpoint_load_dir})
    if (!name->empty()) return *name;
  return fs::path(options.pretrained_checkpoint_file).parent_path().string();
}

void export_model(const fs::path& directory, const ModelConfig& model,
                  const ParameterSource& source, const ExportOptions& options) {
  double start = monotonic_seconds();
  ModelConfig there = model;  // as transformers has it
  if (auto complete = model_family(model.model_type).complete) complete(there);
  std::vector<FileTensor> tensors = file_tensors(model.model_type, parameters_of(there));
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.tokenizer.empty())
    tokenizer = load_tokenizer_for(options.tokenizer, model.vocab_size);
  if (tokenizer) check_tokenizer_export(options.tokenizer, *tokenizer, model.model_type);
  check_export_directory(directory);
  const fs::path final = plain(directory);
  TemporaryDirectory temporary(aside_of(final));
  Json config = Json::parse(hugging_face_config_json(there));
  config["torch_dtype"] = options.dtype == DType::kF32    ? "float32"
                          : options.dtype == DType::kBF16 ? "bfloat16"
                                                          : "float16";
  if (tokenizer) {
    Json ids = write_tokenizer(options.tokenizer, *tokenizer, options.chat_template,
                               model.max_context_width, temporary.path());
    // In config.json it stops that token's gradient: the model has it, or it has none.
    ids.erase("pad_token_id");
    config.update(ids);
  } else {
    // Else transformers takes the ids of the family's first models.
    config["bos_token_id"] = config["eos_token_id"] = nullptr;
  }
  warn_of_replaced_files(final, temporary.path());
  write_json(temporary.path() / "config.json", config);
  write_weights(temporary.path(), tensors, ZerosElsewhere(source, parameters_of(model)),
                options.dtype, options.max_shard_bytes);
  put_in_place(temporary.path(), final);
  TESSERA_INFO(cat("Wrote ", final.string(), ": ",
                   format_count(static_cast<double>(parameter_count(model))), " parameters in ",
                   name(options.dtype), ", in ", format("%.1f", monotonic_seconds() - start), " s",
                   tokenizer ? "" : ", without a tokenizer"));
}

}  // namespace tessera
