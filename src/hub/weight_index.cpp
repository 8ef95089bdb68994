#include "hub/weight_index.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxDepth = 16;

// Takes the weight_map from the events of the JSON parser: whatever else a file holds is never in
// memory as a document.
class IndexBuilder {
 public:
  explicit IndexBuilder(std::string_view where) : where_(where) {}

  WeightIndex take() && {
    if (index_.empty()) fail("it has no 'weight_map', or an empty one");
    return std::move(index_);
  }

  bool key(std::string& text) {
    key_ = std::move(text);
    return true;
  }
  bool start_object(size_t) {
    if (depth_ == 1 && key_ == "weight_map") {
      if (seen_map_) fail("'weight_map' appears twice");
      seen_map_ = in_map_ = true;
    } else if (depth_ > 0) {
      value("an object");
    }
    return deeper();
  }
  bool end_object() {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(size_t) {
    value("an array");
    return deeper();
  }
  bool end_array() { return end_object(); }
  bool string(std::string& file) {
    if (!in_map_ || depth_ != 2) return value("a string");
    if (key_.size() > kMaxNameBytes) fail(cat("a name is longer than ", kMaxNameBytes, " bytes"));
    bool known = file.ends_with(".safetensors") || file.ends_with(".bin");
    if (file.size() > kMaxNameBytes || !is_plain_name(file) || !known) {
      fail(cat("tensor '", key_.substr(0, 100),
               "' must be in a file of the same directory with a name that ends in .safetensors or "
               ".bin, not in '",
               file.substr(0, 100), "'"));
    }
    auto [place, added] = index_.emplace(std::move(key_), std::move(file));
    if (!added) fail(cat("tensor '", place->first, "' appears twice"));
    return true;
  }
  bool null() { return value("null"); }
  bool boolean(bool) { return value("a truth value"); }
  bool number_integer(int64_t) { return value("a number"); }
  bool number_unsigned(uint64_t) { return value("a number"); }
  bool number_float(double, const std::string&) { return value("a number"); }
  bool binary(std::vector<uint8_t>&) { return value("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail(cat("broken JSON at byte ", position));
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw UserError(cat("'", where_, "' is not a valid index of weights: ", reason));
  }
  // A value that is not the file of a tensor.
  bool value(std::string_view what) const {
    if (depth_ == 0) fail(cat("it is not an object but ", what));
    if (in_map_) fail(cat("the file of tensor '", key_.substr(0, 100), "' is ", what));
    return true;
  }
  bool deeper() {
    if (++depth_ > kMaxDepth) fail("its JSON is nested too deeply");
    return true;
  }

  std::string where_;
  WeightIndex index_;
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false, seen_map_ = false;
};

}  // namespace

WeightIndex parse_weight_index(std::string_view json, std::string_view where) {
  if (json.size() > kMaxBytes) {
    throw UserError(cat("'", where, "' is not a valid index of weights: it has ",
                        format_bytes(static_cast<int64_t>(json.size())), ", more than ",
                        format_bytes(static_cast<int64_t>(kMaxBytes))));
  }
  IndexBuilder builder(where);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return std::move(builder).take();
}

std::string weight_index_json(const WeightIndex& index, int64_t total_bytes) {
  nlohmann::ordered_json json{{"metadata", {{"total_size", total_bytes}}}};
  nlohmann::ordered_json::object_t map;
  for (const auto& [tensor, file] : index) map.emplace_back(tensor, file);
  json["weight_map"] = std::move(map);
  return json.dump(2) + "\n";
}

}  // namespace tessera
