#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace {

constexpr const char* kHelp = R"(tessera trains large language models from one native program.

Usage: tessera COMMAND [OPTIONS]

Commands
  train       train or fine-tune a model, or evaluate it (--eval_only)
  run         train on many processes and hosts: starts and watches the ranks
  plan        parameters, memory to the byte and arithmetic of a run, without running it
  generate    continue a text with a trained checkpoint
  export      write a trained model as Hugging Face's programs load it
  tokenizer   train a tokenizer, encode and decode
  data        prepare data for training, and look at what lies in files
  checkpoint  list, look into, verify, compare and remove checkpoints
  plot        draw curves of runs
  bench       time every op (bench ops), or one training step by op (bench step)
  diff        find the first op whose results differ between two runs
  version     version, compiler and what this machine offers

`tessera COMMAND --help` explains a command and all its options.

Examples
  tessera tokenizer train --input text.txt.gz --vocab_size 8192 --output tokenizer.json
  tessera train --model_type llama_v2 --hidden_width 256 --num_layers 8 --num_heads 8 \
      --intermediate_size 768 --vocab_size 8192 --max_context_width 256 \
      --dataset text.txt.gz --tokenizer tokenizer.json --checkpoint_dir checkpoints
  tessera generate checkpoints --prompt "Once upon a time"
  tessera plan --model_name llama2_70b --train_batch_size 1
)";

struct Command {
  const char* name;
  int (*run)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {
    {"train", tessera::train_command},           {"plan", tessera::plan_command},
    {"generate", tessera::generate_command},     {"tokenizer", tessera::tokenizer_command},
    {"bench", tessera::bench_command},           {"diff", tessera::diff_command},
    {"version", tessera::version_command},       {"run", tessera::run_command},
    {"export", tessera::export_command},         {"data", tessera::data_command},
    {"checkpoint", tessera::checkpoint_command}, {"plot", tessera::plot_command},
};

int run(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::fputs(kHelp, words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  std::string name = words[0] == "--version" ? "version" : words[0];
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    // Before there is any other thread. The agent, which computes nothing, takes its own.
    if (command.run != tessera::run_command) tessera::take_signals();
    return command.run(std::span(words).subspan(1));
  }
  std::vector<std::string> names = tessera::command_names();
  std::string close = tessera::nearest(name, names);
  throw tessera::UsageError(
      tessera::cat("unknown command '", name, "'; ",
                   close.empty() ? "" : tessera::cat("did you mean '", close, "'? "),
                   "Commands: ", tessera::join(names, ", ")));
}

}  // namespace

std::vector<std::string> tessera::command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  return names;
}

int main(int argc, char** argv) {
  try {
    int status = run({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tessera::UserError("cannot write to standard output: is the disk full?");
    return status;
  } catch (const tessera::UsageError& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 1;
  }
}
