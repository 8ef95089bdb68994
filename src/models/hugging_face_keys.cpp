#include "models/hugging_face_keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

using Json = nlohmann::json;

const Json* HuggingFaceKeys::present(std::string_view key) const {
  asked_.emplace(key);
  auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

const Json* HuggingFaceKeys::find(std::string_view key) const {
  const Json* value = present(key);
  return value && value->is_null() ? nullptr : value;
}

bool HuggingFaceKeys::has(std::string_view key) const { return present(key) != nullptr; }

int64_t HuggingFaceKeys::integer(std::string_view key, int64_t fallback) const {
  const Json* value = present(key);
  if (!value) return fallback;
  // 2^40 is far above every bound of check() and exact in a double.
  if (!value->is_number_integer() || !(std::abs(value->get<double>()) < 0x1p40))
    fail(key, "an integer", *value);
  return value->get<int64_t>();
}

double HuggingFaceKeys::real(std::string_view key, double fallback) const {
  const Json* value = present(key);
  if (!value) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fail(key, "a number", *value);
  return value->get<double>();
}

double HuggingFaceKeys::positive(std::string_view key, double fallback) const {
  double value = real(key, fallback);
  if (!(value > 0)) fail(key, "a number above 0", *present(key));
  return value;
}

bool HuggingFaceKeys::boolean(std::string_view key, bool fallback) const {
  const Json* value = present(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(key, "true or false", *value);
  return value->get<bool>();
}

std::string HuggingFaceKeys::text(std::string_view key, std::string_view fallback) const {
  const Json* value = present(key);
  if (!value) return std::string(fallback);
  if (!value->is_string()) fail(key, "a string", *value);
  return value->get<std::string>().substr(0, 100);
}

void HuggingFaceKeys::must_agree(std::string_view key, double used,
                                 std::string_view because) const {
  double value = real(key, used);
  if (value == used) return;
  refuse(cat("'", key, "' is ", value, ", but ", because, " says ", used,
             ", which is what counts: remove one of them"));
}

void HuggingFaceKeys::fail(std::string_view key, std::string_view expected,
                           const Json& value) const {
  std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
  throw UserError(cat(where_, ": '", key, "' must be ", expected, ": it is ", shown));
}

void HuggingFaceKeys::refuse(std::string_view what) const {
  throw UserError(cat(where_, ": ", what));
}

void HuggingFaceKeys::refuse_others(std::span<const std::string_view> harmless) const {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || asked_.contains(key) || std::ranges::count(harmless, key) > 0) continue;
    std::string shown = Json(key).dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
    refuse(cat(shown,
               " is not known here, so what it changes would not be computed: remove it if it "
               "changes nothing"));
  }
}

bool read_tanh_gelu(const HuggingFaceKeys& keys, const char* key, const char* fallback) {
  constexpr std::string_view kExact[] = {"gelu", "gelu_python"};
  constexpr std::string_view kTanh[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                                        "gelu_python_tanh", "gelu_accurate"};
  std::string activation = keys.text(key, fallback);
  if (std::ranges::count(kExact, activation) > 0) return false;
  if (std::ranges::count(kTanh, activation) > 0) return true;
  keys.refuse(cat("'", key, "' must be gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or another ",
                  "name of these: it is '", activation, "'"));
}

}  // namespace tessera
