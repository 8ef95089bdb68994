#pragma once
#include <span>
#include <string>

#include "profile/profile_report.h"

namespace tessera {

// A page that loads nothing: timeline of all ranks and lanes, flame view, memory over time with
// what is live at the peak, and the tables of the report.
std::string profile_page(std::span<const RankTrace> traces, const ProfileReport& report);

}  // namespace tessera
