#pragma once
#include <filesystem>
#include <string>

namespace tessera {

// Where the rings of a job lie: DIR/attempt_N, with N the restarts so far. DIR is what was asked
// for, or, so that no event ever waits for a disk, in the memory of the host: a directory of the
// user and the job below /dev/shm.
std::filesystem::path flight_directory(const std::string& asked, const std::string& job,
                                       int attempt);

// All of this user's that were not asked for.
std::filesystem::path own_flights();
// Makes that directory, for this user alone. UserError where it cannot be, or another made it.
void make_own_flights();
// The newest of them; "" where there is none.
std::filesystem::path newest_flight(const std::filesystem::path& flights = own_flights());

// Makes room among them: removes those of jobs whose processes have all ended, but for the newest
// few. Touches nothing that another user made.
void remove_old_flights(const std::filesystem::path& flights = own_flights());

}  // namespace tessera
