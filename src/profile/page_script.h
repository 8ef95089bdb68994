#pragma once

namespace tessera {

// Of profile_page(): what stands in front of the tables, and what draws `data`.
extern const char* const kPageBody;
extern const char* const kPageScript;

}  // namespace tessera
