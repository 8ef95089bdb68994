#include "checkpoint/lock_text.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

using LockJson = nlohmann::ordered_json;

}  // namespace

LockText parse_lock(const std::string& text) {
  LockText lock;
  LockJson json = LockJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return lock;
  try {
    json.at("job").get_to(lock.job);
    json.at("token").get_to(lock.token);
    json.at("host").get_to(lock.host);
    json.at("boot").get_to(lock.boot);
    json.at("attempt").get_to(lock.attempt);
    json.at("pid").get_to(lock.pid);
    json.at("device").get_to(lock.device);
    json.at("flock").get_to(lock.flock);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return lock;
}

std::string lock_content(const CheckpointLock::Holder& holder, const std::string& token,
                         int64_t device, bool flock, int64_t beats) {
  LockJson json{
      {"job", holder.job}, {"attempt", holder.attempt}, {"host", host_name()}, {"boot", boot_id()},
      {"pid", ::getpid()}, {"device", device},          {"token", token},      {"flock", flock}};
  if (beats > 0) json["beats"] = beats;
  return json.dump(1, ' ', false, LockJson::error_handler_t::replace) + "\n";
}

std::string describe(const LockText& lock) {
  if (lock.host.empty()) return "an unknown process";
  return cat("process ", lock.pid, " on ", lock.host, " (job ", lock.job, ")");
}

void refuse_in_use(const std::filesystem::path& directory, const LockText& holder) {
  throw DirectoryInUse(cat("'", directory.string(), "' is in use by ", describe(holder),
                           ", which saves its checkpoints there: wait for its end, or give "
                           "another --checkpoint_dir"));
}

std::string taken_over(const std::filesystem::path& directory, const LockText& by,
                       std::chrono::milliseconds silence) {
  return cat("the lock of '", directory.string(), "' was taken over by ", describe(by),
             ", since this process gave no sign of life for ", silence.count() / 1000,
             " s; it saves nothing there any more");
}

}  // namespace tessera
