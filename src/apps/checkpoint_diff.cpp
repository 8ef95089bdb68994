#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>

#include "apps/checkpoint_command.h"
#include "apps/data_input.h"
#include "apps/progress.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/tensor_values.h"
#include "options/run_record.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

struct Pair {
  std::string name;
  const ManifestTensor *a = nullptr, *b = nullptr;  // null where one has none of the name
  TensorDifference difference;

  TensorRole role() const { return (a ? a : b)->role; }
  bool comparable() const { return a && b && a->shape == b->shape; }
  bool equal() const { return comparable() && a->dtype == b->dtype && difference.different == 0; }
};

struct FieldDifference {
  std::string field;  // "options.lr"
  Json a, b;          // null where one has none
};

void add_fields(const std::string& prefix, const Json& a, const Json& b,
                std::vector<FieldDifference>& found) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    found.push_back({prefix, a, b});
    return;
  }
  auto value = [](const Json& object, const std::string& key) {
    auto it = object.find(key);
    return it == object.end() ? Json(nullptr) : *it;
  };
  std::vector<std::string> keys;
  for (const auto& item : a.items()) keys.push_back(item.key());
  for (const auto& item : b.items())
    if (!a.contains(item.key())) keys.push_back(item.key());
  for (const std::string& key : keys)
    add_fields(cat(prefix, prefix.empty() ? "" : ".", key), value(a, key), value(b, key), found);
}

// Attached files that one lacks, or that are different by their hashes.
std::vector<std::string> different_files(const Manifest& a, const Manifest& b) {
  std::map<std::string, std::pair<const ManifestFile*, const ManifestFile*>> files;
  for (const ManifestFile& file : a.files)
    if (is_attached_name(file.name)) files[file.name].first = &file;
  for (const ManifestFile& file : b.files)
    if (is_attached_name(file.name)) files[file.name].second = &file;
  std::vector<std::string> names;
  for (const auto& [name, pair] : files) {
    auto [x, y] = pair;
    if (!x || !y || x->hash != y->hash || x->bytes != y->bytes) names.push_back(name);
  }
  return names;
}

std::vector<Pair> compare_tensors(const CheckpointReader& a, const CheckpointReader& b,
                                  int threads) {
  std::vector<Pair> pairs;
  for (const ManifestTensor& tensor : a.manifest().tensors)
    pairs.push_back({tensor.name, &tensor, b.find(tensor.name), {}});
  for (const ManifestTensor& tensor : b.manifest().tensors)
    if (!a.find(tensor.name)) pairs.push_back({tensor.name, nullptr, &tensor, {}});
  auto bytes_of = [](const Pair& pair) {
    return pair.a ? num_elements(pair.a->shape) * size_of(pair.a->dtype) : 0;
  };
  int64_t done = 0, total = 0;
  for (const Pair& pair : pairs) total += bytes_of(pair);
  Progress progress("comparing");
  std::mutex mutex;
  ThreadPool pool(threads);
  pool.run(std::ssize(pairs), [&](int64_t i, int) {
    Pair& pair = pairs[static_cast<size_t>(i)];
    if (pair.comparable()) pair.difference = difference_of(a, *pair.a, b, *pair.b);
    std::lock_guard lock(mutex);
    progress.show(done += bytes_of(pair), total, format_bytes);
  });
  // Weights first, and of each role the largest difference.
  std::ranges::stable_sort(pairs, [](const Pair& x, const Pair& y) {
    auto size = [](const Pair& p) {
      return std::tuple(!p.comparable(), p.difference.non_finite > 0, p.difference.absolute,
                        p.difference.different);
    };
    return x.role() != y.role() ? x.role() < y.role() : size(x) > size(y);
  });
  return pairs;
}

std::string type_text(const ManifestTensor* tensor) {
  return tensor ? cat(name(tensor->dtype), " ", to_string(tensor->shape)) : "none";
}

std::string difference_text(const std::vector<Pair>& pairs) {
  std::string other_types;
  std::vector<std::vector<std::string>> rows{{"largest", "relative", "different", "tensor"}};
  int64_t equal = 0;
  for (const Pair& pair : pairs) {
    equal += pair.equal();
    bool same_type = pair.comparable() && pair.a->dtype == pair.b->dtype;
    if (!same_type) {
      other_types += cat("  ", pair.name, ": ", type_text(pair.a), " | ", type_text(pair.b), "\n");
    }
    const TensorDifference& d = pair.difference;
    if (d.different == 0) continue;
    rows.push_back({d.non_finite > 0 ? "not finite" : format("%.3g", d.absolute),
                    format("%.3g", d.relative), cat(d.different, " of ", d.elements), pair.name});
  }
  return cat("tensors: ", equal, " of ", pairs.size(), " equal\n", other_types,
             rows.size() > 1 ? columns(rows) : "");
}

std::string field_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json type_json(const ManifestTensor* tensor) {
  if (!tensor) return nullptr;
  return {{"dtype", name(tensor->dtype)}, {"shape", tensor->shape}};
}

Json to_json(const std::vector<Pair>& pairs) {
  Json all = Json::array();
  for (const Pair& pair : pairs) {
    if (pair.equal()) continue;
    const TensorDifference& d = pair.difference;
    Json one{{"name", pair.name},
             {"role", name(pair.role())},
             {"a", type_json(pair.a)},
             {"b", type_json(pair.b)}};
    if (pair.comparable()) {
      one["elements"] = d.elements;
      one["different"] = d.different;
      one["non_finite"] = d.non_finite;
      one["largest_absolute"] = d.absolute;
      one["largest_relative"] = d.relative;
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

int diff_checkpoints(const ParsedOptions& parsed) {
  if (parsed.words.size() != 3) {
    throw UsageError("checkpoint diff takes two checkpoints: tessera checkpoint diff A B");
  }
  const auto a = open_newest(parsed.words[1]), b = open_newest(parsed.words[2]);
  std::vector<FieldDifference> fields;
  add_fields("", Json::parse(shown_record_of(*a)), Json::parse(shown_record_of(*b)), fields);
  const std::vector<std::string> files = different_files(a->manifest(), b->manifest());
  const std::vector<Pair> pairs = compare_tensors(*a, *b, threads_of(parsed));
  const bool equal = fields.empty() && files.empty() && std::ranges::all_of(pairs, &Pair::equal);
  if (parsed.config.json) {
    Json record = Json::array();
    for (const FieldDifference& d : fields)
      record.push_back({{"field", d.field}, {"a", d.a}, {"b", d.b}});
    print_json({{"a", a->path().string()},
                {"b", b->path().string()},
                {"equal", equal},
                {"record", std::move(record)},
                {"files", files},
                {"tensor_count", pairs.size()},
                {"tensors", to_json(pairs)}});
    return equal ? 0 : 1;
  }
  std::string text = cat(a->path().string(), " | ", b->path().string(), "\n");
  text += fields.empty() ? "record: equal\n" : "record:\n";
  for (const FieldDifference& d : fields)
    text += cat("  ", d.field, ": ", field_text(d.a), " | ", field_text(d.b), "\n");
  for (const std::string& file : files) text += cat("file ", file, " differs\n");
  text += difference_text(pairs);
  std::fputs(text.c_str(), stdout);
  return equal ? 0 : 1;
}

}  // namespace tessera
