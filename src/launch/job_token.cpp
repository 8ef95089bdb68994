#include "launch/job_token.h"

#include <sys/stat.h>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

// Who can read a job's token can join the job, and who can write it can make others join his.
void check_private(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;  // reading it says why
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) == 0) return;
  throw UserError(cat("'", path,
                      "' is open to other users of this host, and whoever knows the token "
                      "can join the job: chmod 600 ",
                      path));
}

}  // namespace

std::string job_token(RunOptions& options, const RunEnvironment& environment) {
  if (!options.token_file.empty()) {
    check_private(options.token_file);
    std::string text = read_file(options.token_file);
    std::string token(trim(text));
    bool one_line = token.find_first_of(std::string("\n\0", 2)) == std::string::npos;
    if (token.size() < 8 || token.size() > 4096 || !one_line) {
      throw UserError(cat("'", options.token_file,
                          "' must hold one line of 8 to 4096 bytes, for example made by `openssl "
                          "rand -hex 32`"));
    }
    return token;
  }
  const char* given = environment("TESSERA_JOB_TOKEN");
  if (given && *given) return given;
  if (options.nnodes == 1) return hex(secret_random_bytes(32));
  options.warnings.push_back(
      "the job's token is derived from --rdzv_id, which others may guess: give all nodes the same "
      "secret by TESSERA_JOB_TOKEN or --token_file");
  return hex(sha256(cat("tessera job ", options.rdzv_id)));
}

}  // namespace tessera
