#pragma once
#include <string>
#include <string_view>

#include "programs/session.h"

namespace tessera {

// What lies in memory when, as a page that loads nothing: for every program of the session its
// arena with a rectangle a storage, from the op that fills it first to the last that reads it, at
// its place, coloured by kind or by layer; op, shape and bytes under the pointer; and what lives at
// each op. The state, which is always there, is a bar below.
std::string memory_chart(const Session& session, std::string_view title);

// The page around the data, a JSON object (memory_chart.cpp).
std::string memory_chart_page(std::string_view title, std::string_view json);

}  // namespace tessera
