#include "apps/job_connection.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait_notice.h"
#include "comm/connect.h"
#include "comm/slurm_token.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

// So much longer rank 0 serves the store of a job that did not come about: the other ranks, whose
// deadlines are over at the same moment, still learn there who is missing.
constexpr std::chrono::milliseconds kFarewell{500};

// The store answers at once: who waits longer for the way there and back waits for a server that
// has stopped.
constexpr std::chrono::milliseconds kLongestRoundTrip{30'000};

// The places where rank 0 serves the store, or one of them, if no agent does.
std::vector<Endpoint> places_of_store(const JobMember& self) {
  std::vector<Endpoint> places;
  for (int i = 0; i < self.master_ports; ++i)
    places.push_back({self.master_address, self.master_port + i});
  return places;
}

std::unique_ptr<TcpStoreServer> serve_store(const JobMember& self,
                                            const std::vector<Endpoint>& places) {
  const bool several_hosts = self.slurm && self.slurm->nodes > 1;
  for (const Endpoint& place : places) {
    try {
      return std::make_unique<TcpStoreServer>(self.token, address_to_bind(place, several_hosts));
    } catch (const AddressInUseError&) {
      if (place.port == places.back().port) throw;
    }
  }
  return nullptr;
}

void warn_of_idle_part(const RunConfig& config) {
  std::string idle = idle_part_of_slurm_job();
  if (idle.empty() || config.eval_only) return;
  TESSERA_WARN(cat("this process trains alone, and its Slurm job has ", idle,
                   ": start it with srun, and all of them take part"));
}

}  // namespace

JobConnection join_job(const RunConfig& config) {
  JobConnection job;
  job.member = job_member_from_environment();
  if (!job.member) {
    require_no_other_task();
    warn_of_idle_part(config);
  }
  if (!job.member || job.member->world_size == 1) return job;
  JobMember& self = *job.member;
  // Who looks for the job's first host may read any rank's log, as an agent's.
  if (!self.agent_store)
    TESSERA_INFO(cat("Rendezvous of rank ", self.rank, " of ", self.world_size,
                     ": master_addr=", self.master_address));
  if (self.rank != 0 && config.log_level != "error") set_log_level(LogLevel::kWarning);
  std::chrono::milliseconds deadline(static_cast<int64_t>(config.comm_timeout * 1000));
  std::optional<SlurmToken> shared;  // until all have joined
  if (self.slurm) {
    shared.emplace(
        *self.slurm, [](const char* name) { return std::getenv(name); }, deadline);
    self.token = shared->value();
    if (self.master_address == self.slurm->first_node)
      self.master_address = reach_slurm_node(self.slurm->first_node);
  }
  std::vector<Endpoint> places = places_of_store(self);
  if (self.rank == 0 && !self.agent_store) {
    job.server = serve_store(self, places);
    places = {{self.master_address, job.server->port()}};
  }
  Transport transport = config.distributed_backend == "gloo"            ? Transport::kGloo
                        : config.distributed_backend == "shared_memory" ? Transport::kSharedMemory
                                                                        : Transport::kAuto;
  try {
    WaitNotice notice;
    job.store = std::make_shared<TcpStore>(
        places, self.token, deadline, std::min(deadline, kLongestRoundTrip),
        [&](const std::string& so_far) {
          if (notice.is_due())
            TESSERA_WARN(
                cat(so_far, " Rank ", self.rank, " tries for ", config.comm_timeout, " s in all"));
        });
    job.channels = connect(self, job.store, {deadline}, transport);
  } catch (const CommError& error) {
    if (job.server) std::this_thread::sleep_for(kFarewell);
    std::string_view server =
        self.agent_store || self.rank == 0 ? "" : " (rank 0 serves the job's store)";
    throw CommError(cat("rank ", self.rank, " cannot join the job: ", error.what(), server));
  }
  return job;
}

}  // namespace tessera
