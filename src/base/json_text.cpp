#include "base/json_text.h"

#include <nlohmann/json.hpp>

namespace tessera {

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera
