#include "flight/flight_places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "flight/ring_reader.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKeptJobs = 4;

bool is_own_directory(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

struct Flight {
  fs::path path;
  fs::file_time_type changed;
  size_t rings = 0;
  bool ended = false;
};

// Of what does not say whose it is: a process that was killed while it made that.
bool is_old(fs::file_time_type changed) {
  return fs::file_time_type::clock::now() - changed > std::chrono::hours(1);
}

// The newest first.
std::vector<Flight> jobs_in(const fs::path& flights, bool look_at_processes) {
  std::vector<Flight> jobs;
  if (!is_own_directory(flights)) return jobs;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(flights, error)) {
    Flight flight{job.path(), job.last_write_time(error)};
    size_t ended = 0;
    for (fs::recursive_directory_iterator files(job.path(), error), none; files != none;
         files.increment(error)) {
      if (error) break;
      if (files->path().extension() != ".ring") continue;
      ++flight.rings;
      const fs::file_time_type changed = files->last_write_time(error);
      flight.changed = std::max(flight.changed, changed);
      if (!look_at_processes) continue;
      const auto maker = ring_maker_state(files->path());
      ended += maker ? *maker == MakerState::kEnded : is_old(changed);
    }
    flight.ended = flight.rings > 0 ? ended == flight.rings : is_old(flight.changed);
    jobs.push_back(std::move(flight));
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Flight& a, const Flight& b) { return a.changed > b.changed; });
  return jobs;
}

}  // namespace

fs::path own_flights() { return cat("/dev/shm/tessera-flight-", ::geteuid()); }

void make_own_flights() {
  const std::string path = own_flights().string();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw UserError(cat("cannot make '", path, "': ", std::strerror(errno)));
  if (!is_own_directory(path)) throw UserError(cat("'", path, "' is not a directory of this user"));
}

fs::path flight_directory(const std::string& asked, const std::string& job, int attempt) {
  const fs::path directory = asked.empty() ? own_flights() / job : fs::path(asked);
  return directory / cat("attempt_", attempt);
}

fs::path newest_flight(const fs::path& flights) {
  for (const Flight& job : jobs_in(flights, false))
    if (job.rings > 0) return job.path;
  return {};
}

void remove_old_flights(const fs::path& flights) {
  size_t kept = 0;
  std::error_code error;
  for (const Flight& job : jobs_in(flights, true))
    if (job.ended && (job.rings == 0 || ++kept > kKeptJobs)) fs::remove_all(job.path, error);
}

}  // namespace tessera
