#include "base/shallow_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

template <class Json>
Json parse_shallow_json(std::string_view text, std::string_view where) {
  constexpr int kMaxDepth = 64;
  using Event = typename Json::parse_event_t;
  bool deep = false;
  auto keep = [&](int around, Event event, Json&) {  // `around`: levels that it is inside of
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (!opens || around < kMaxDepth) return true;
    deep = true;
    return false;
  };
  Json json = Json::value_t::discarded;
  try {
    json = Json::parse(text, keep);
  } catch (const nlohmann::json::parse_error&) {
    return json;
  } catch (const nlohmann::json::out_of_range&) {
    throw UserError(cat(where, ": its JSON has a number that is too large"));
  }
  if (deep && !json.is_discarded())
    throw UserError(cat(where, ": its JSON is nested in more than ", kMaxDepth, " levels"));
  return json;
}

template nlohmann::json parse_shallow_json(std::string_view, std::string_view);
template nlohmann::ordered_json parse_shallow_json(std::string_view, std::string_view);

}  // namespace tessera
