#include "launch/etcd_answer.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/parse_number.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct BadAnswer {};

const Json* find(const Json& json, const char* key) {
  if (!json.is_object()) throw BadAnswer{};
  auto at = json.find(key);
  return at == json.end() ? nullptr : &*at;
}

// 64-bit integers are strings in JSON of gRPC; what is 0 is left out.
int64_t number(const Json& json, const char* key) {
  const Json* at = find(json, key);
  if (!at) return 0;
  if (at->is_number_integer()) return at->get<int64_t>();
  const auto& text = at->get_ref<const std::string&>();
  const auto value = parse_number<int64_t>(text);
  if (!value) throw BadAnswer{};
  return *value;
}

std::string bytes(const Json& json, const char* key) {
  const Json* at = find(json, key);
  if (!at) return "";
  const auto& text = at->get_ref<const std::string&>();
  auto value = from_base64(text);
  if (!value && !text.empty()) throw BadAnswer{};
  return value.value_or("");
}

std::string text_in(const Json& json, const char* key) {
  const Json* at = find(json, key);
  return at && at->is_string() ? at->get<std::string>() : "";
}

EtcdAnswer parse(const Json& json) {
  EtcdAnswer answer;
  if (const Json* header = find(json, "header")) answer.revision = number(*header, "revision");
  if (const Json* values = find(json, "kvs")) {
    for (const Json& one : *values)
      answer.values.push_back(
          {bytes(one, "key"), bytes(one, "value"), number(one, "mod_revision")});
  }
  if (const Json* succeeded = find(json, "succeeded")) answer.succeeded = succeeded->get<bool>();
  answer.lease = number(json, "ID");
  answer.ttl = number(json, "TTL");
  answer.token = text_in(json, "token");
  // Of streams it is an object.
  if (const Json* error = find(json, "error"))
    answer.error = error->is_object() ? text_in(*error, "message") : text_in(json, "error");
  answer.code = static_cast<int>(number(json, "code"));
  return answer;
}

}  // namespace

std::optional<EtcdAnswer> parse_etcd_answer(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    const Json* result = find(json, "result");  // of streams
    return parse(result ? *result : json);
  } catch (const nlohmann::json::exception&) {
  } catch (const BadAnswer&) {
  }
  return std::nullopt;
}

}  // namespace tessera
