#include "options/option_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "hub/remote_model.h"
#include "options/option_table.h"
#include "remote/url.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = 1 << 20;
// In records of earlier versions; no run depended on it.
constexpr std::string_view kGone = "ranks";

template <class T>
Json to_json(const T& value) {
  return value;
}
Json to_json(const double& value) {
  if (std::isfinite(value)) return value;
  return cat(value);
}
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json(nullptr);
}

// Sets one option from JSON. Plain text is taken as it is; all else goes through the row's rules.
class Loader {
 public:
  Loader(RunConfig& config, const OptionRow& row, const Json& value)
      : config_(config), row_(row), value_(value) {}

  void operator()(bool RunConfig::*) const {
    if (!value_.is_boolean()) fail("true or false");
    set(value_.get<bool>() ? "True" : "False");
  }
  void operator()(int64_t RunConfig::*) const { set_number(); }
  void operator()(double RunConfig::*) const { set_number(); }
  template <class T>
  void operator()(std::optional<T> RunConfig::*field) const {
    if (value_.is_null()) {
      config_.*field = std::nullopt;
    } else {
      set_number();
    }
  }
  void operator()(std::string RunConfig::*field) const {
    if (!value_.is_string()) fail("a string");
    if (row_.values.empty() && row_.form != ValueForm::kLayerChoice) {
      config_.*field = value_.get<std::string>();
    } else {
      set(value_.get<std::string>());
    }
  }
  void operator()(std::vector<std::string> RunConfig::*field) const {
    // Some lists were one value in earlier versions.
    (config_.*field).clear();
    if (value_.is_null() || value_ == "") return;
    if (value_.is_string() || value_.is_number_integer()) {
      (config_.*field).push_back(value_.is_string() ? value_.get<std::string>() : value_.dump());
      return;
    }
    bool strings = value_.is_array() && std::all_of(value_.begin(), value_.end(),
                                                    [](const Json& v) { return v.is_string(); });
    if (!strings) fail("a list of strings");
    config_.*field = value_.get<std::vector<std::string>>();
  }

 private:
  void set_number() const {
    if (value_.is_number_float()) {
      set(cat(value_.get<double>()));
    } else if (value_.is_number_integer()) {
      set(value_.dump());
    } else if (value_.is_string()) {  // "inf"
      set(value_.get<std::string>());
    } else {
      fail("a number");
    }
  }
  void set(std::string text) const {
    set_option(config_, row_, {std::move(text)}, cat("option record: ", row_.name));
  }
  [[noreturn]] void fail(std::string_view expected) const {
    throw UserError(cat("option record: ", row_.name, " expects ", expected));
  }

  RunConfig& config_;
  const OptionRow& row_;
  const Json& value_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> option_values(const RunConfig& config) {
  const RunConfig shown = without_secrets(config);
  std::vector<std::pair<std::string, std::string>> values;
  for (const OptionRow& row : option_table()) values.emplace_back(row.name, value_text(shown, row));
  std::ranges::sort(values);
  return values;
}

std::string run_config_json(const RunConfig& config) {
  Json json = Json::object();
  for (const OptionRow& row : option_table()) {
    json[std::string(row.name)] =
        std::visit([&](auto field) { return to_json(config.*field); }, row.field);
  }
  // Bytes that are no UTF-8 (a path may hold any) become U+FFFD: the record stays valid JSON.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunConfig with_absolute_paths(RunConfig config) {
  namespace fs = std::filesystem;
  for (auto field :
       {&RunConfig::dataset, &RunConfig::training_dir, &RunConfig::test_dir,
        &RunConfig::validation_dataset, &RunConfig::tokenizer, &RunConfig::model_config,
        &RunConfig::pretrained_model_name, &RunConfig::pretrained_checkpoint_file,
        &RunConfig::finetune_checkpoint_load_dir, &RunConfig::hf_pretrained_model_name_or_dir,
        &RunConfig::lora_adapter}) {
    std::string& text = config.*field;
    std::error_code error;
    bool is_kind = field == &RunConfig::tokenizer && text == "byte";
    if (text.empty() || is_kind || !fs::exists(text, error)) continue;
    fs::path path = fs::absolute(text, error);
    if (!error) text = path.lexically_normal().string();
  }
  return config;
}

RunConfig with_model_names(RunConfig config) {
  for (auto field :
       {&RunConfig::tokenizer, &RunConfig::model_config, &RunConfig::pretrained_model_name,
        &RunConfig::finetune_checkpoint_load_dir, &RunConfig::hf_pretrained_model_name_or_dir})
    config.*field = model_name_of(config.*field);
  return config;
}

RunConfig without_secrets(RunConfig config) {
  for (const OptionRow& row : option_table()) {
    if (auto* field = std::get_if<std::string RunConfig::*>(&row.field)) {
      config.*(*field) = masked_url(config.*(*field));
    } else if (auto* list = std::get_if<std::vector<std::string> RunConfig::*>(&row.field)) {
      for (std::string& word : config.*(*list)) {
        const bool mixed = *list == &RunConfig::dataset_mix;  // NAME=WEIGHT
        const size_t end = mixed ? std::min(word.rfind('='), word.size()) : word.size();
        word = masked_url(word.substr(0, end)) + word.substr(end);
      }
    }
  }
  return config;
}

RunConfig run_config_from_json(std::string_view text) {
  if (text.size() > kMaxBytes) throw UserError("option record: larger than 1 MiB");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw UserError("option record: not a JSON object");
  RunConfig config;
  for (const auto& [key, value] : json.items()) {
    const OptionRow* row = find_option(key);
    if (!row && key == kGone) continue;
    if (!row || row->name != key) {
      throw UserError(cat("option record: unknown option '", key.substr(0, 60),
                          "'; was it written by another version?"));
    }
    try {
      std::visit(Loader(config, *row, value), row->field);
    } catch (const UsageError& error) {
      throw UserError(error.what());  // a damaged file, not a wrong command line
    }
  }
  return config;
}

}  // namespace tessera
