#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tessera {

// The JSON of somebody else's file, fit to be copied and printed, for which nlohmann's library
// calls itself once a level: UserError naming `where` for more than 64 of them, and for a
// number that is too large. Discarded if not valid. Json: nlohmann::json or nlohmann::ordered_json.
template <class Json = nlohmann::json>
Json parse_shallow_json(std::string_view text, std::string_view where);

}  // namespace tessera
