#pragma once

namespace tessera {

// The function `name` of libcurl, which is loaded at the first call: whoever fetches nothing never
// waits for it or for what it pulls in. UserError that names the package where it is not installed.
void* curl_function(const char* name);

}  // namespace tessera
