#pragma once

namespace tessera {

// From here on SIGINT and SIGTERM only set a flag; a second SIGINT ends the process at once.
void catch_interruptions();
bool interrupted();
void clear_interruption();  // for tests

}  // namespace tessera
