#include "comm/slurm_token.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "comm/file_descriptor.h"
#include "comm/health.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr size_t kDigits = 64;
constexpr std::chrono::milliseconds kLookAgain{50};
constexpr const char* kRemedy =
    "give all tasks the same secret by TESSERA_JOB_TOKEN, for example `export "
    "TESSERA_JOB_TOKEN=$(openssl rand -hex 32)` ahead of srun";

// Whole, or not there.
void write_private(const fs::path& path, const std::string& text) {
  fs::path aside = cat(path.string(), ".tmp-", unique_suffix());
  FileDescriptor file(
      ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  bool written = file && write_fully(file.get(), text) == text.size();
  if (written && ::rename(aside.c_str(), path.c_str()) == 0) return;
  std::string reason = std::strerror(errno);
  ::unlink(aside.c_str());
  throw UserError(cat("cannot leave the job's token for the other tasks in '", path.string(),
                      "': ", reason,
                      "; start the tasks in a directory that this user can write, or ", kRemedy));
}

// "" while it is not there.
std::string read_private(const fs::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT || errno == ESTALE) return "";
    throw UserError(cat("cannot read the job's token from '", path.string(),
                        "': ", std::strerror(errno), "; or ", kRemedy));
  }
  struct stat status {};
  ::fstat(file.get(), &status);
  bool own = S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
             (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (!own) {
    throw UserError(cat("'", path.string(),
                        "' is not a file that this user alone can read: somebody else may know the "
                        "job's token. Remove it, start the tasks in a directory of your own, or ",
                        kRemedy));
  }
  char text[kDigits];
  ssize_t got = ::pread(file.get(), text, sizeof text, 0);
  return got == static_cast<ssize_t>(sizeof text) ? std::string(text, sizeof text) : "";
}

}  // namespace

SlurmToken::SlurmToken(const SlurmStep& step, const Environment& environment,
                       std::chrono::milliseconds timeout) {
  const char* given = environment("TESSERA_JOB_TOKEN");
  if (given && *given) {
    value_ = step.token_from(given);
    return;
  }
  fs::path path = fs::current_path() / step.token_file();
  if (step.task == 0) {
    value_ = hex(secret_random_bytes(kDigits / 2));
    write_private(path, value_ + "\n");
    made_ = path;
    return;
  }
  auto deadline = steady_clock::now() + timeout;
  while ((value_ = read_private(path)).empty()) {
    if (steady_clock::now() >= deadline) {
      throw CommError(cat("task ", step.task, " on ", host_name(), " found no '", path.string(),
                          "' within ", seconds_text(timeout),
                          ": task 0 leaves the job's token there when it starts. Did it start, and "
                          "do all nodes share that directory? If not, ",
                          kRemedy));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

SlurmToken::~SlurmToken() {
  std::error_code ignored;
  if (!made_.empty()) fs::remove(made_, ignored);
}

}  // namespace tessera
