#pragma once
#include <memory>
#include <optional>

#include "comm/channels.h"
#include "comm/job.h"
#include "comm/store.h"
#include "comm/tcp_store.h"
#include "options/run_config.h"

namespace tessera {

// This process's connection to the other ranks of its job; empty for a process on its own.
struct JobConnection {
  std::optional<JobMember> member;
  std::unique_ptr<TcpStoreServer> server;  // on rank 0, where no agent serves the store
  std::shared_ptr<Store> store;
  Channels channels;
};

// Joins the job that the environment names (comm/job.h), with the transport and the deadline of the
// options. Ranks other than 0 print warnings and errors only from here on.
JobConnection join_job(const RunConfig& config);

}  // namespace tessera
