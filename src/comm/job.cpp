#include "comm/job.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

[[noreturn]] void throw_missing(const char* name) {
  throw UsageError(cat("environment variable ", name,
                       " is missing: a rank of a job needs RANK, WORLD_SIZE, LOCAL_RANK, "
                       "MASTER_ADDR and MASTER_PORT. Start it with `tessera run`, or set them; a "
                       "process on its own has neither RANK nor WORLD_SIZE"));
}

std::optional<int> number(const char* name, int lowest, int highest) {
  auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  bool whole = error == std::errc() && end == text->data() + text->size();
  if (!whole || value < lowest || value > highest) {
    throw UsageError(cat("environment variable ", name, " must be a number from ", lowest, " to ",
                         highest, ": it is '", *text, "'"));
  }
  return value;
}

int required(const char* name, int lowest, int highest) {
  auto value = number(name, lowest, highest);
  if (!value) throw_missing(name);
  return *value;
}

std::string default_host_id() {
  std::string boot(trim(read_file("/proc/sys/kernel/random/boot_id")));
  struct stat shm {};
  bool there = ::stat("/dev/shm", &shm) == 0;
  return cat(boot, "-", there ? shm.st_dev : 0);
}

}  // namespace

std::optional<JobMember> job_member_from_environment() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  JobMember job;
  job.world_size = required("WORLD_SIZE", 1, kMaxWorldSize);
  job.rank = required("RANK", 0, job.world_size - 1);
  bool alone = job.world_size == 1;
  auto local_world = number("LOCAL_WORLD_SIZE", 1, job.world_size);
  auto local_rank = number("LOCAL_RANK", 0, local_world.value_or(job.world_size) - 1);
  if (!local_rank && !alone) throw_missing("LOCAL_RANK");
  job.local_rank = local_rank.value_or(0);
  job.local_world_size = local_world.value_or(job.local_rank + 1);
  auto address = variable("MASTER_ADDR");
  if (!address && !alone) throw_missing("MASTER_ADDR");
  job.master_address = address.value_or(job.master_address);
  auto port = number("MASTER_PORT", 1, 65535);
  if (!port && !alone) throw_missing("MASTER_PORT");
  job.master_port = port.value_or(0);
  job.token = variable("TESSERA_JOB_TOKEN").value_or("");
  auto host = variable("TESSERA_HOST_ID");
  job.host_id = host ? *host : default_host_id();
  job.attempt = number("TESSERA_ATTEMPT", 0, 1'000'000'000).value_or(0);
  job.agent_store = number("TESSERA_AGENT_STORE", 0, 1).value_or(0) == 1;
  job.interface = variable("TESSERA_INTERFACE").value_or("");
  return job;
}

}  // namespace tessera
