#pragma once
#include <memory>
#include <string_view>

#include "apps/job_connection.h"
#include "flight/flight_recorder.h"
#include "options/run_config.h"

namespace tessera {

// Of a recorder that goes without end_flight(): it failed.
struct EndOfFlight {
  void operator()(FlightRecorder* flight) const;
};
using Flight = std::unique_ptr<FlightRecorder, EndOfFlight>;

// The flight recorder of this rank, which hears of its exchanges from here on and so outlives the
// connection; with reports on SIGUSR2, on the failure of another rank and on fatal signals. None
// where options ask for none, or, with a warning, where its files cannot be made.
Flight open_flight_recorder(const RunConfig& config, const JobConnection& job);

// The run ends, and so. Nothing where there is no recorder. What lies in the memory of the host
// stays for tessera postmortem if the job has failed, and else goes.
void end_flight(const Flight& flight, RingEnd end, std::string_view text = "");

}  // namespace tessera
