#include "launch/etcd_answer.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/base64.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct BadAnswer {};

// 64-bit integers are strings in JSON of gRPC; what is 0 is left out.
int64_t number(const Json& json, const char* key) {
  auto at = json.find(key);
  if (at == json.end()) return 0;
  if (at->is_number_integer()) return at->get<int64_t>();
  const auto& text = at->get_ref<const std::string&>();
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw BadAnswer{};
  return value;
}

std::string bytes(const Json& json, const char* key) {
  auto at = json.find(key);
  if (at == json.end()) return "";
  const auto& text = at->get_ref<const std::string&>();
  auto value = from_base64(text);
  if (!value && !text.empty()) throw BadAnswer{};
  return value.value_or("");
}

std::string text_in(const Json& json, const char* key) {
  auto at = json.find(key);
  return at == json.end() || !at->is_string() ? "" : at->get<std::string>();
}

EtcdAnswer parse(const Json& json) {
  EtcdAnswer answer;
  if (auto header = json.find("header"); header != json.end())
    answer.revision = number(*header, "revision");
  if (auto values = json.find("kvs"); values != json.end()) {
    for (const Json& one : *values)
      answer.values.push_back(
          {bytes(one, "key"), bytes(one, "value"), number(one, "mod_revision")});
  }
  if (auto succeeded = json.find("succeeded"); succeeded != json.end())
    answer.succeeded = succeeded->get<bool>();
  answer.lease = number(json, "ID");
  answer.ttl = number(json, "TTL");
  answer.token = text_in(json, "token");
  // Of streams it is an object.
  if (auto error = json.find("error"); error != json.end())
    answer.error = error->is_object() ? text_in(*error, "message") : text_in(json, "error");
  answer.code = static_cast<int>(number(json, "code"));
  return answer;
}

}  // namespace

std::optional<EtcdAnswer> parse_etcd_answer(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    auto result = json.find("result");  // of streams
    return parse(result == json.end() ? json : *result);
  } catch (const nlohmann::json::exception&) {
  } catch (const BadAnswer&) {
  }
  return std::nullopt;
}

}  // namespace tessera
