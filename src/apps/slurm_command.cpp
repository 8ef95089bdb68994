#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/program_output.h"
#include "base/text.h"
#include "cluster/slurm_script.h"
#include "launch/worker_command.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp = R"(Usage: tessera slurm render [OPTIONS] train [OPTIONS of train]
       tessera slurm submit [OPTIONS] train [OPTIONS of train]
       tessera slurm submit SCRIPT

render writes the batch script of a job: an agent a node that starts its ranks (tessera run), with a save ahead
of the time limit after which the job comes back and goes on. submit writes it to NAME.sbatch, gives it to
sbatch, and shows the log of the job until it has ended; its exit status is that of the job.

Examples
  tessera slurm render --nodes 4 --nproc_per_node 8 --time 4:00:00 train --model_name llama3.2_1b \
      --dataset corpus/ --checkpoint_dir checkpoints > job.sbatch
  tessera slurm submit --nodes 2 --cpus 32 --partition cpu --file job.sbatch train ...
  tessera slurm render --nodes 2 --gpus_per_node 8 --instance_type p5.48xlarge --container_image \
      $PWD/tessera.sqsh --container_mounts /fsx:/fsx train ...

Options
)";

int print_own_help() {
  const auto options = cluster_options(ClusterSystem::kSlurm);
  std::fputs(cat(kHelp, option_lines(texts(options))).c_str(), stdout);
  return 0;
}

constexpr std::chrono::seconds kSlurmTimeout{60}, kBetweenLooks{2};
// A controller that starts again, or another that takes its place, is there within minutes.
constexpr std::chrono::minutes kSilence{10};

// Containers have their own; elsewhere it lies where this one does.
std::string program_on_nodes(const ClusterOptions& options) {
  if (!options.image.empty()) return "tessera";
  if (auto script = start_script()) return *script;
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "tessera" : self.string();
}

ProgramOutput ask_slurm(const std::vector<std::string>& words) {
  auto output = program_output(words, kSlurmTimeout);
  if (!output) {
    throw UserError(cat("cannot run ", words[0],
                        ": is Slurm installed on this host, and in PATH? `tessera slurm render` "
                        "writes the script for another one"));
  }
  return *output;
}

// The value of NAME=VALUE in a line of scontrol; "" where it is not there.
std::string field(const std::string& line, const std::string& name) {
  size_t at = line.find(cat(" ", name, "="));
  if (at == std::string::npos) return "";
  std::string_view rest = std::string_view(line).substr(at + name.size() + 2);
  return std::string(rest.substr(0, rest.find_first_of(" \n")));
}

bool is_running(const std::string& state) {
  for (const char* word : {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED",
                           "REQUEUE_HOLD", "RESIZING", "SUSPENDED", "STOPPED", "SIGNALING"}) {
    if (state.starts_with(word)) return true;
  }
  return false;
}

// Prints what has come to a file since the last time.
class LogFollower {
 public:
  void show(const std::string& path) {
    std::error_code error;
    uint64_t size = fs::file_size(path, error);
    if (error || size <= shown_) return;
    ReadFile file(path);
    std::string text;
    while (shown_ < size) {
      text.resize(std::min<uint64_t>(size - shown_, 1 << 16));
      file.read(shown_, std::as_writable_bytes(std::span(text)));
      std::fwrite(text.data(), 1, text.size(), stdout);
      shown_ += text.size();
    }
    std::fflush(stdout);
  }

 private:
  uint64_t shown_ = 0;
};

// What scontrol says of the job. While the controller does not answer, the job goes on.
std::string ask_of_job(const std::string& job) {
  const auto until = std::chrono::steady_clock::now() + kSilence;
  for (bool warned = false;; warned = true) {
    std::string why;
    try {
      ProgramOutput told = ask_slurm({"scontrol", "show", "job", "-o", job});
      if (told.status == 0) return told.out;
      why = trim(told.err);
    } catch (const DeviceError& late) {
      why = late.what();
    }
    if (why.find("Invalid job id") != std::string::npos ||
        std::chrono::steady_clock::now() > until) {
      throw UserError(cat("Slurm does not tell of job ", job, " any more: ", why, "; sacct -j ",
                          job, " may know how it ended"));
    }
    if (!warned) TESSERA_WARN(cat("Slurm does not tell of job ", job, ": ", why, "; asking again"));
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// The exit status of the job.
int follow(const std::string& job) {
  LogFollower log;
  std::string before;
  while (true) {
    const std::string told = ask_of_job(job);
    std::string state = field(told, "JobState");
    log.show(field(told, "StdOut"));
    if (state != before) TESSERA_INFO(cat("Job ", job, ": ", state));
    before = state;
    if (!is_running(state)) {
      if (state == "COMPLETED") return 0;
      std::string code = field(told, "ExitCode");
      int status = std::atoi(code.c_str());
      std::fprintf(stderr, "tessera: job %s ended as %s, exit code %s\n", job.c_str(),
                   state.c_str(), code.c_str());
      return status > 0 && status < 256 ? status : 1;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

int submit(const std::string& script) {
  ProgramOutput told = ask_slurm({"sbatch", "--parsable", script});
  std::string job(trim(told.out));
  job = job.substr(0, job.find(';'));
  if (told.status != 0 || job.empty())
    throw UserError(cat("sbatch refused '", script, "': ", trim(told.err)));
  TESSERA_INFO(cat("Job ", job, " is submitted. Ctrl-C ends this view of its log only; `scancel ",
                   job, "` has it save and end"));
  return follow(job);
}

// One word behind `submit` is a script, unless it is a command of tessera or an option.
bool is_script(const std::string& word) {
  std::error_code error;
  if (fs::is_regular_file(word, error)) return true;
  const std::vector<std::string> names = command_names();
  if (word.starts_with("-") || std::ranges::find(names, word) != names.end()) return false;
  const std::string close = nearest(word, names);
  throw UsageError(cat("'", word, "' is neither a script nor a command of tessera",
                       close.empty() ? "" : cat("; did you mean '", close, "'?")));
}

// A job whose log has no directory ends at once, without a word.
void make_log_directory(const ClusterOptions& options) {
  fs::path folder = fs::path(options.log).parent_path();
  if (!folder.empty() && folder.string().find('%') == std::string::npos) make_directories(folder);
}

}  // namespace

int slurm_command(std::span<const std::string> arguments) {
  std::string action = arguments.empty() ? "" : arguments[0];
  if (is_help(action)) return print_own_help();
  if (action != "render" && action != "submit")
    throw UsageError("slurm takes render or submit: see tessera slurm --help");
  auto rest = arguments.subspan(1);
  if (action == "submit" && rest.size() == 1 && is_script(rest[0])) return submit(rest[0]);
  ClusterOptions options = parse_cluster_options(rest, ClusterSystem::kSlurm);
  if (options.help) return print_own_help();
  check_worker_program(options.command[0], command_names(),
                       action == "submit" && options.image.empty());
  check_worker_options(options.command);
  std::string script = slurm_script(options, program_on_nodes(options));
  if (action == "render" && options.file.empty()) {
    std::fputs(script.c_str(), stdout);
    return 0;
  }
  if (options.file.empty()) options.file = cat(options.job_name, ".sbatch");
  write_file_atomic(options.file, script);
  if (action == "render") return 0;
  make_log_directory(options);
  return submit(options.file);
}

}  // namespace tessera
