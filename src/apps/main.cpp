#include <signal.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/interruption.h"
#include "base/open_files.h"
#include "base/terminal_text.h"
#include "base/text.h"

namespace {

constexpr const char* kHelpBegin = R"(tessera trains large language models from one native program.

Usage: tessera COMMAND [OPTIONS]

Commands
)";

constexpr const char* kHelpEnd = R"(
`tessera COMMAND --help` or `tessera help COMMAND` explains a command and all its options.

Examples
  tessera tokenizer train --input text.txt.gz --vocab_size 8192 --output tokenizer.json
  tessera train --model_type llama_v2 --hidden_width 256 --num_layers 8 --num_heads 8 \
      --intermediate_size 768 --vocab_size 8192 --max_context_width 256 \
      --dataset text.txt.gz --tokenizer tokenizer.json --checkpoint_dir checkpoints
  tessera generate checkpoints --prompt "Once upon a time"
  tessera plan --model_name llama2_70b --train_batch_size 1
)";

struct Command {
  const char *name, *summary;
  int (*run)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {
    {"train", "train or fine-tune a model, or evaluate it (--eval_only)", tessera::train_command},
    {"run", "train on many processes and hosts: starts and watches the ranks",
     tessera::run_command},
    {"slurm", "the batch script of a job for Slurm: write it, submit it", tessera::slurm_command},
    {"k8s", "the objects of a job for Kubernetes", tessera::k8s_command},
    {"doctor", "look at hosts, links and directories before a job: what is wrong, who is slow",
     tessera::doctor_command},
    {"comm-test", "collectives between ranks, in the columns of nccl-tests",
     tessera::comm_test_command},
    {"plan", "parameters, memory to the byte and arithmetic of a run, without running it",
     tessera::plan_command},
    {"explain", "why a run takes so much memory, which kernels it gets, what passes change",
     tessera::explain_command},
    {"generate", "continue a text with a trained checkpoint", tessera::generate_command},
    {"export", "write a trained model as Hugging Face's programs load it", tessera::export_command},
    {"tokenizer", "train a tokenizer, encode and decode", tessera::tokenizer_command},
    {"data", "prepare data for training, and look at what lies in files", tessera::data_command},
    {"checkpoint", "list, look into, verify, compare, remove and convert checkpoints",
     tessera::checkpoint_command},
    {"plot", "draw curves of runs", tessera::plot_command},
    {"profile", "where the time of steps goes: what --use_profiler recorded",
     tessera::profile_command},
    {"postmortem", "who waited for whom in a job that hangs or is dead: what every rank did last",
     tessera::postmortem_command},
    {"bench", "time every op (bench ops), or one training step by op (bench step)",
     tessera::bench_command},
    {"diff", "find the first op whose results differ between two runs", tessera::diff_command},
    {"completion", "what makes bash, zsh or fish complete commands and options",
     tessera::completion_command},
    {"manual", "the manual page: tessera manual | man -l -", tessera::manual_command},
    {"version", "version, compiler and what this machine offers", tessera::version_command},
};

std::string help() {
  std::string text = kHelpBegin;
  for (const Command& command : kCommands)
    text += tessera::format("  %-11s %s\n", command.name, command.summary);
  return text + kHelpEnd;
}

int run(std::vector<std::string> words) {
  if (words.size() > 1 && words[0] == "help" && !words[1].starts_with("-")) {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::fputs(help().c_str(), words.empty() ? stderr : stdout);
    return words.empty() ? tessera::kUsageStatus : tessera::kSuccessStatus;
  }
  std::string name = words[0] == "--version" ? "version" : words[0];
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    // Before there is any other thread. The agent, which computes nothing, takes its own.
    if (command.run != tessera::run_command) tessera::take_signals();
    return command.run(std::span(words).subspan(1));
  }
  std::vector<std::string> names = tessera::command_names();
  // What the job's starter is called elsewhere.
  std::string close = name == "launch" ? "run" : tessera::nearest(name, names);
  throw tessera::UsageError(
      tessera::cat("unknown command '", name, "'",
                   close.empty() ? "." : tessera::cat("; did you mean '", close, "'?"),
                   " Commands: ", tessera::join(names, ", ")));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> tessera::command_summaries() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Command& command : kCommands) all.emplace_back(command.name, command.summary);
  return all;
}

std::vector<std::string> tessera::command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  return names;
}

int main(int argc, char** argv) {
  // A file that would exceed RLIMIT_FSIZE is an error like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  tessera::raise_open_files_limit();
  try {
    int status = run({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tessera::UserError("cannot write to standard output: is the disk full?");
    return status;
  } catch (const tessera::UsageError& error) {
    tessera::print_error(error.what());
    return tessera::kUsageStatus;
  } catch (const tessera::CommError& error) {
    // Another rank has ended. Who started both sees it end first, and a signal to both ends both.
    tessera::interrupted_soon();
    tessera::print_error(error.what());
    return tessera::kFailureStatus;
  } catch (const std::exception& error) {
    tessera::print_error(error.what());
    return tessera::kFailureStatus;
  }
}
