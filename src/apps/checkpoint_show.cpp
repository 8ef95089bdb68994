#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/checkpoint_command.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/tensor_values.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string_view role_plural(TensorRole role) {
  switch (role) {
    case TensorRole::kWeight: return "weights";
    case TensorRole::kMoment: return "moments";
    case TensorRole::kCounter: return "counters";
    case TensorRole::kOther: break;
  }
  return "others";
}

struct RoleTotal {
  int64_t tensors = 0, boxes = 0, elements = 0, bytes = 0;
};

std::map<TensorRole, RoleTotal> totals_of(const Manifest& manifest) {
  std::map<TensorRole, RoleTotal> totals;
  for (const ManifestTensor& tensor : manifest.tensors) {
    RoleTotal& total = totals[tensor.role];
    ++total.tensors;
    total.boxes += std::ssize(tensor.boxes);
    total.elements += num_elements(tensor.shape);
    total.bytes += tensor.bytes();
  }
  return totals;
}

std::string model_text(const RunRecord& record) {
  const ModelConfig& m = record.model;
  return cat(name(m.model_type), ", ", format_count(static_cast<double>(record.parameter_count)),
             " parameters: num_layers ", m.num_layers, ", hidden_width ", m.hidden_width,
             ", num_heads ", m.num_heads, ", vocab_size ", m.vocab_size, ", max_context_width ",
             m.max_context_width);
}

std::string schedule_text(const ScheduleState& s) {
  const std::string peak = cat(name(s.decay_style), ", peak ", s.start_lr);
  if (s.decay_style == DecayStyle::kStep) return cat(peak, ", times ", s.gamma, " an epoch");
  return cat(peak, has_floor(s.decay_style) ? cat(", least ", s.min_lr) : "", ", warm-up of ",
             s.warmup_iter, " of ", s.end_iter, " steps");
}

std::string record_text(const CheckpointReader& reader, const RunRecord& record) {
  const Manifest& manifest = reader.manifest();
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += static_cast<int64_t>(file.bytes);
  std::string text = labelled("checkpoint", reader.path().string());
  text += labelled("step", cat(record.step));
  text += labelled("tokens seen", cat(record.tokens_seen));
  text += labelled("model", model_text(record));
  text += labelled(
      "mesh", cat(record.mesh, record.data_ranks ? cat("; its data ranks: ", *record.data_ranks)
                                                 : std::string()));
  text += labelled("optimizer", record.options.optimizer);
  if (record.converted_from.empty())
    text += labelled("schedule", schedule_text(record.schedule));
  else
    text += labelled("made of", record.converted_from);
  if (record.tokenizer) {
    text += labelled("tokenizer", cat(record.tokenizer->place, ", fingerprint ",
                                      hex(record.tokenizer->fingerprint)));
  }
  text += labelled("data", cat("next sample ", record.position,
                               record.training_text
                                   ? cat(" of a text of ", record.training_text->tokens, " tokens")
                                   : std::string()));
  if (record.best_validation_loss) {
    text +=
        labelled("best so far", cat(*record.best_validation_loss, " in ", record.best_checkpoint));
  }
  text += labelled("run", manifest.origin.run.empty() ? "-" : manifest.origin.run);
  text += labelled("files", cat(manifest.files.size(), ", ", format_bytes(bytes), ", version ",
                                manifest.version, " of the format"));
  return text;
}

std::string number_text(double x) { return std::isnan(x) ? "none" : format("%.6g", x); }

std::string statistics_line(const TensorStatistics& s) {
  return cat("  minimum ", number_text(s.minimum), ", maximum ", number_text(s.maximum), ", mean ",
             number_text(s.mean), ", norm ", number_text(s.norm), ", ", s.non_finite, " of ",
             s.elements, " not finite\n");
}

std::string tensor_text(const CheckpointReader& reader, const ManifestTensor& tensor,
                        const TensorStatistics& statistics) {
  std::string text = cat(tensor.name, "  ", name(tensor.role), ", ", name(tensor.dtype), " ",
                         to_string(tensor.shape), "\n", statistics_line(statistics));
  std::vector<std::vector<std::string>> rows;
  for (const StoredBox& stored : tensor.boxes) {
    rows.push_back({cat("  ", to_string(stored.box)), reader.manifest().files[stored.file].name,
                    cat("byte ", stored.offset)});
  }
  return text + columns(rows);
}

std::string tensor_list(const Manifest& manifest) {
  std::vector<std::vector<std::string>> rows{{"role", "dtype", "shape", "boxes", "name"}};
  for (const ManifestTensor& tensor : manifest.tensors) {
    rows.push_back({std::string(name(tensor.role)), std::string(name(tensor.dtype)),
                    to_string(tensor.shape), cat(tensor.boxes.size()), tensor.name});
  }
  return columns(rows);
}

Json to_json(const CheckpointReader& reader, const ManifestTensor& tensor,
             const TensorStatistics* statistics) {
  Json json{{"name", tensor.name},         {"role", name(tensor.role)},
            {"dtype", name(tensor.dtype)}, {"shape", tensor.shape},
            {"bytes", tensor.bytes()},     {"box_count", tensor.boxes.size()}};
  if (!statistics) return json;
  const TensorStatistics& s = *statistics;
  json["statistics"] = {{"elements", s.elements}, {"non_finite", s.non_finite},
                        {"minimum", s.minimum},   {"maximum", s.maximum},
                        {"mean", s.mean},         {"norm", s.norm}};
  json["boxes"] = Json::array();
  for (const StoredBox& stored : tensor.boxes) {
    json["boxes"].push_back({{"file", reader.manifest().files[stored.file].name},
                             {"offset", stored.offset},
                             {"begin", stored.box.begin},
                             {"shape", stored.box.shape},
                             {"xxh3", stored.hash ? Json(hex(*stored.hash)) : Json(nullptr)}});
  }
  return json;
}

Json summary_json(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  Json json{{"checkpoint", reader.path().string()},
            {"version", manifest.version},
            {"run", manifest.origin.run},
            {"job", manifest.origin.job},
            {"record", Json::parse(shown_record_of(reader))},
            {"files", Json::array()},
            {"totals", Json::object()}};
  for (const ManifestFile& file : manifest.files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", hex(file.hash)}});
  for (const auto& [role, total] : totals_of(manifest)) {
    json["totals"][std::string(name(role))] = {{"tensors", total.tensors},
                                               {"boxes", total.boxes},
                                               {"elements", total.elements},
                                               {"bytes", total.bytes}};
  }
  return json;
}

std::vector<const ManifestTensor*> tensors_named(const CheckpointReader& reader,
                                                 const std::string& pattern) {
  std::vector<const ManifestTensor*> found;
  std::vector<std::string> names;
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    if (tensor.name == pattern || ::fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0)
      found.push_back(&tensor);
    names.push_back(tensor.name);
  }
  if (found.empty()) {
    const std::string close = nearest(pattern, names);
    throw UserError(cat("checkpoint '", reader.path().string(), "' has no tensor '", pattern, "'",
                        close.empty() ? "" : cat("; did you mean '", close, "'?")));
  }
  return found;
}

// Of tensors whose hashes are right.
void show_tensors(const CheckpointReader& reader, const std::string& pattern, bool json) {
  Json all = Json::array();
  for (const ManifestTensor* tensor : tensors_named(reader, pattern)) {
    for (const StoredBox& stored : tensor->boxes) reader.verify(*tensor, stored);
    const TensorStatistics statistics = statistics_of(reader, *tensor);
    if (json)
      all.push_back(to_json(reader, *tensor, &statistics));
    else
      std::fputs(tensor_text(reader, *tensor, statistics).c_str(), stdout);
  }
  if (json) print_json({{"checkpoint", reader.path().string()}, {"tensors", std::move(all)}});
}

}  // namespace

int show_checkpoint(const ParsedOptions& parsed) {
  if (parsed.words.size() != 2 && parsed.words.size() != 3) {
    throw UsageError(
        "checkpoint show takes a checkpoint, or a directory of them, and perhaps a tensor: tessera "
        "checkpoint show CHECKPOINT|DIR [TENSOR]");
  }
  const auto reader = open_newest(parsed.words[1]);
  if (parsed.words.size() == 3) {
    show_tensors(*reader, parsed.words[2], parsed.config.json);
    return 0;
  }
  const RunRecord record = record_of(*reader);
  if (parsed.config.json) {
    Json json = summary_json(*reader);
    json["tensors"] = Json::array();
    for (const ManifestTensor& tensor : reader->manifest().tensors)
      json["tensors"].push_back(to_json(*reader, tensor, nullptr));
    print_json(json);
    return 0;
  }
  std::string text = record_text(*reader, record);
  for (const auto& [role, total] : totals_of(reader->manifest())) {
    text += labelled(
        role_plural(role),
        cat(total.tensors, total.tensors == 1 ? " tensor" : " tensors", " in ", total.boxes,
            total.boxes == 1 ? " box, " : " boxes, ", total.elements,
            total.elements == 1 ? " element, " : " elements, ", format_bytes(total.bytes)));
  }
  text += cat("\n", tensor_list(reader->manifest()));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
