#pragma once
#include <string>

namespace tessera {

// The page of the dashboard. It holds nothing of a run: it asks for that, once a second, next to
// the address at which it is served, and no one else for anything.
std::string dashboard_page();

// Its script.
extern const char* const kDashboardScript;

}  // namespace tessera
