#include "apps/flight.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "flight/flight_places.h"
#include "flight/process_report.h"
#include "flight/ring_file.h"
#include "flight/ring_reader.h"

namespace tessera {
namespace {

// Equal on all ranks of a job, and unlike those of others on this host at the same time.
std::string job_name(const JobConnection& job) {
  if (!job.member) return cat("pid_", ::getpid());
  if (!job.member->id.empty()) return job.member->id;
  return cat("port_", job.member->master_port);
}

}  // namespace

void EndOfFlight::operator()(FlightRecorder* flight) const {
  flight->end(RingEnd::kFailed, "an error outside of training");
  report_to(nullptr);
  delete flight;
}

Flight open_flight_recorder(const RunConfig& config, const JobConnection& job) {
  if (config.flight_recorder_size == 0) return nullptr;
  FlightRecorder::Settings settings;
  settings.events = config.flight_recorder_size;
  settings.job = job_name(job);
  if (job.member) {
    settings.rank = job.member->rank;
    settings.world_size = job.member->world_size;
    settings.attempt = job.member->attempt;
  }
  settings.directory = flight_directory(config.flight_recorder_dir, settings.job, settings.attempt);
  Flight flight;
  try {
    if (config.flight_recorder_dir.empty()) {
      make_own_flights();
      if (!job.member || job.member->local_rank == 0) remove_old_flights();
    }
    const std::filesystem::path ring = ring_path(settings.directory, settings.rank);
    const auto maker = ring_maker_state(ring);
    if (maker == MakerState::kRunning || maker == MakerState::kStopped)
      throw UserError(cat("'", ring.string(),
                          "' is written by a process that runs: give each job "
                          "a --flight_recorder_dir of its own"));
    flight.reset(new FlightRecorder(std::move(settings)));
  } catch (const Error& error) {
    TESSERA_WARN(cat(error.what(), "; the run goes on without a flight recorder"));
    return nullptr;
  }
  if (job.channels.control) {
    job.channels.communicator->listen(flight.get());
    job.channels.control->listen(flight.get());
    // Before threads are woken, which shows where they waited; and one that throws may hold a lock
    // of the unwinder, which taking its stack would wait for.
    job.channels.control->before_failure(
        [](const std::string& cause) { write_process_report(cause); });
  }
  report_to(flight.get());
  return flight;
}

void end_flight(const Flight& flight, RingEnd end, std::string_view text) {
  if (!flight) return;
  flight->end(end, text);
  report_to(nullptr);
  const bool in_memory = flight->directory().native().starts_with(own_flights().native());
  const bool says_more = end == RingEnd::kFailed && flight->settings().world_size > 1;
  if (in_memory && !says_more) flight->remove_files();
}

}  // namespace tessera
