#include "apps/job_connection.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/connect.h"

namespace tessera {

JobConnection join_job(const RunConfig& config) {
  JobConnection job;
  job.member = job_member_from_environment();
  if (!job.member || job.member->world_size == 1) return job;
  const JobMember& self = *job.member;
  if (self.rank != 0) set_log_level(LogLevel::kWarning);
  std::chrono::milliseconds deadline(static_cast<int64_t>(config.comm_timeout * 1000));
  if (self.rank == 0 && !self.agent_store)
    job.server = std::make_unique<TcpStoreServer>(self.token,
                                                  Endpoint{self.master_address, self.master_port});
  Transport transport = config.distributed_backend == "gloo"            ? Transport::kGloo
                        : config.distributed_backend == "shared_memory" ? Transport::kSharedMemory
                                                                        : Transport::kAuto;
  try {
    job.store = std::make_shared<TcpStore>(Endpoint{self.master_address, self.master_port},
                                           self.token, deadline);
    job.communicator = connect(self, job.store, {deadline}, transport);
  } catch (const CommError& error) {
    std::string_view server =
        self.agent_store || self.rank == 0 ? "" : " (rank 0 serves the job's store)";
    throw CommError(cat("rank ", self.rank, " cannot join the job: ", error.what(), server));
  }
  return job;
}

}  // namespace tessera
